"""What root does in folders of edge-deploy's user ends in those folders, whatever that user puts there meanwhile."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from edge.deploy.provision.remote.files import Directory, File, Lines
from edge.deploy.provision.remote.folders import Conflict
from tests.support import people

pytestmark = [
    people.needs_root,
    pytest.mark.slow_but(reason="further first installations: the first row of each test is quick"),
]
RACE_S = 2.0


@pytest.fixture
def site():
    """`data` belongs to the other user and has a folder `store`; `foreign` belongs to root and holds a file."""
    with people.shared_folder() as folder:
        for path in (folder / "data", folder / "data/store", folder / "foreign"):
            path.mkdir()
        for path in (folder / "data", folder / "data/store"):
            os.chown(path, *people.ids())
        (folder / "foreign/precious").write_bytes(b"precious")
        (folder / "foreign").chmod(0o700)
        yield folder


def directory(path: Path) -> Directory:
    values = {"path": str(path), "mode": 0o755, "owner": people.NAME, "group": people.GROUP}
    return Directory({**values, "is_data": True, "is_volatile": False}, {"before": None})


def attempt(act) -> str:
    """Do what provision would do, and return what it said; refusing is as good as doing."""
    try:
        return str(act())
    except (Conflict, OSError) as refusal:
        return f"refused: {refusal}"


def is_untouched(site: Path) -> bool:
    status = (site / "foreign").stat()
    there = (status.st_uid, status.st_mode & 0o7777, (site / "foreign/precious").exists())
    return there == (0, 0o700, True)


def purged(step: Directory) -> str:
    return step.undo(is_real=True, purge=True, gone=set())


def undone(step: Directory) -> str:
    """Give its former rights back."""
    step.record = {"before": [0o777, *people.ids()]}
    return step.undo(is_real=True, purge=False, gone=set())


@pytest.mark.parametrize(
    ("act", "part", "words"),
    [
        (purged, "store", "remove link"),
        (purged, "store/sha256", "pass over"),
        (Directory.apply, "store", "link"),
        (Directory.apply, "store/sha256", "link"),
        (undone, "store", "is a link"),
    ],
)
def test_what_a_folder_that_has_become_a_link_leads_to_is_left_as_it_is(site, act, part, words):
    (site / "foreign/sha256").mkdir()
    (site / "foreign/sha256/precious").write_bytes(b"precious")
    (site / "data/store").rmdir()
    (site / "data/store").symlink_to(site / "foreign")

    told = attempt(lambda: act(directory(site / "data" / part)))

    assert is_untouched(site), told
    assert (site / "foreign/sha256/precious").exists(), told
    assert (site / "foreign/sha256").stat().st_uid == 0, told
    assert words in told
    assert (site / "data/store").is_symlink() == (words != "remove link")


def is_undecided(begun_s, came_to_an_end):
    """Whether to go on: for two seconds, and on a busy machine until one attempt has come to its end."""
    return time.monotonic() < begun_s + (RACE_S if came_to_an_end else 60)


def test_provision_again_gives_nothing_away_while_a_folder_and_a_link_are_exchanged(site):
    (site / "data/link").symlink_to(site / "foreign")
    os.chown(site / "data/link", *people.ids(), follow_symlinks=False)
    begun_s, given = time.monotonic(), 0
    with people.exchanging(site / "data/store", site / "data/link"):
        while is_undecided(begun_s, given) and is_untouched(site):
            step = directory(site / "data/store")
            told = attempt(step.apply)
            given += told.startswith("{")

    assert is_untouched(site)
    assert given, "no attempt came to its end, so nothing was tried"


def test_purge_empties_nothing_else_while_folders_and_links_are_exchanged(site):
    (site / "data/link").symlink_to(site / "foreign")
    begun_s, emptied = time.monotonic(), 0
    with people.exchanging(site / "data/store", site / "data/link"):
        while is_undecided(begun_s, emptied) and is_untouched(site):
            told = attempt(lambda: purged(directory(site / "data/store")))
            emptied += "remove folder" in told
            for name, make in (("store", Path.mkdir), ("link", lambda path: path.symlink_to(site / "foreign"))):
                if not os.path.lexists(site / "data" / name):
                    attempt(lambda name=name, make=make: make(site / "data" / name))

    assert is_untouched(site)
    assert emptied, "nothing was removed, so nothing was tried"


def test_purge_removes_each_kind_of_file_and_nothing_behind_it(site):
    store = site / "data/store"
    (store / "to-file").symlink_to(site / "foreign/precious")
    (store / "to-folder").symlink_to(site / "foreign")
    (store / "to-nothing").symlink_to(site / "nowhere")
    os.link(site / "foreign/precious", store / "second-name")
    os.mkfifo(store / "fifo")
    (store / "sealed").mkdir(mode=0)
    (store / "deep/er").mkdir(parents=True)
    (store / "deep/er/link").symlink_to(site / "foreign")

    told = attempt(lambda: purged(directory(store)))

    assert told == f"remove folder {store}"
    assert is_untouched(site)
    assert not store.exists()


def test_purge_goes_as_deep_as_anybody_can_dig(site):
    store, levels = site / "data/store", 3000
    descriptor = os.open(store, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("a", dir_fd=descriptor)
        inner = os.open("a", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)

    told = attempt(lambda: purged(directory(store)))
    subprocess.run(["rm", "-rf", str(store)], check=True)  # what was left, pytest could not take away

    assert told == f"remove folder {store}"


@pytest.mark.parametrize("name", ["mounted", "my disk"])
def test_purge_stops_at_what_is_mounted(site, name):
    (site / "data/store").rename(site / "data" / name)
    store = site / "data" / name
    mounted = store / name
    mounted.mkdir()
    (site / "foreign/folder").mkdir()
    if subprocess.run(["mount", "--bind", str(site / "foreign"), str(mounted)], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        told = attempt(lambda: purged(directory(store)))
    finally:
        subprocess.run(["umount", str(mounted)], check=True)

    assert is_untouched(site)
    assert (site / "foreign/folder").exists()
    assert told.startswith(f"keep {store}"), told
    assert f"something is mounted at {mounted}" in told


def file(path: Path, content: str = "new\n") -> File:
    values = {"path": str(path), "content": content, "mode": 0o644, "owner": "root", "group": "root", "test": None}
    return File(values, None)


def test_a_file_of_roots_is_not_written_where_another_user_could_put_something_in_its_place(site):
    told = attempt(lambda: file(site / "data/store/unit").apply())

    assert "refused" in told
    assert people.NAME in told
    assert not (site / "data/store/unit").exists()


def test_a_second_name_of_a_file_is_not_read_as_provisions_own(site):
    os.link(site / "foreign/precious", site / "foreign/second-name")

    assert "hard link" in attempt(lambda: file(site / "foreign/second-name", "precious").check())


def test_a_fifo_in_the_place_of_a_file_is_refused_and_not_waited_for(site):
    os.mkfifo(site / "foreign/fifo")
    values = {"path": str(site / "foreign/fifo"), "mode": 0o644, "owner": "root", "group": "root"}
    lines = Lines({**values, "entries": [["line AAAA", "AAAA"]], "on_other": "widen"}, None)
    for step in (file(site / "foreign/fifo"), lines):
        assert "no regular file" in attempt(step.check)


def test_a_link_that_root_has_made_in_a_folder_of_roots_is_a_path_like_any_other(site):
    (site / "elsewhere").symlink_to("foreign")

    assert file(site / "elsewhere/unit").apply()

    assert (site / "foreign/unit").read_text() == "new\n"


def test_a_link_of_another_user_is_not_followed_where_everybody_may_make_one(site):
    (site / "everybody").mkdir()
    (site / "everybody").chmod(0o1777)
    link = site / "everybody/link"
    link.symlink_to(site / "foreign")
    os.chown(link, *people.ids(), follow_symlinks=False)

    told = attempt(file(link / "unit").apply)

    assert told == f"refused: {link} is a link, which is not followed"
    assert not (site / "foreign/unit").exists()

"""The software as provision installs it: by SHA-256, from root's own folder, by no index, deaf to its surroundings."""

import hashlib
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from edge.deploy.provision.facts import FACTS_SCRIPT, WHEEL_STORE
from edge.deploy.provision.remote import main
from edge.deploy.provision.remote.folders import Conflict
from edge.deploy.provision.remote.software import Software, stock
from tests.support import people
from tests.support.device_releases import flip
from tests.support.wheels import facts_told, little_wheel, real_pip, software_values

pytestmark = [
    people.needs_root,
    pytest.mark.slow_but(
        "test_a_program_loads_nothing_that_its_user_or_its_caller_has_put_somewhere",
        reason="further first installations",
    ),
]
PROGRAM = "import os, sys\ndef main():\n    print('dont_write_bytecode', sys.flags.dont_write_bytecode)\n"
STORE = "cache/edge-deploy/wheels"


@pytest.fixture
def site():
    """The store holds the wheels of pip, of a library and of a program, `edge-runtime`."""
    with people.shared_folder() as folder:
        (folder / "opt").mkdir()
        (store := folder / STORE).mkdir(parents=True)
        real_pip(store)
        little_wheel(store, "numpy", "2.0")
        with zipfile.ZipFile(little_wheel(store, "edge-deploy", "1.0", "numpy", "newcomer"), "a") as archive:
            archive.writestr("edge_program.py", PROGRAM)
            archive.writestr(
                "edge_deploy-1.0.dist-info/entry_points.txt", "[console_scripts]\nedge-runtime = edge_program:main\n"
            )
        yield folder


@pytest.fixture
def step(site):
    """Return what makes the step, which keeps the SHA-256 of the wheels as they are now."""
    kept = software_values(site, "edge-1.0")

    def step(name="edge-1.0", record=None, **more):
        return Software({**kept, "path": str(site / "opt" / name), **more}, record)

    return step


def installed(site: Path) -> list[str]:
    return sorted(folder.name for folder in (site / "opt/edge").glob("lib/python*/site-packages/*.dist-info"))


def test_a_program_loads_nothing_that_its_user_or_its_caller_has_put_somewhere(site, step):
    step().apply()
    ran = site / "ran"
    planted = f"import pathlib; pathlib.Path({str(ran)!r}).touch()\n"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    own, callers = site / "home/.local/lib" / version / "site-packages", site / "callers"
    for folder, name in ((own, "usercustomize.py"), (own, "edge_program.py"), (callers, "sitecustomize.py")):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(planted)
    (callers / "edge_program.py").write_text(planted + PROGRAM)
    environment = {"HOME": str(site / "home"), "PYTHONPATH": str(callers), "PYTHONSTARTUP": str(callers / "any.py")}

    told = subprocess.run(
        [site / "opt/edge/bin/edge-runtime"], env=environment, cwd=callers, capture_output=True, text=True, check=True
    )

    assert not ran.exists()
    assert told.stdout == "dont_write_bytecode 1\n"
    script = (site / "opt/edge-1.0/bin/edge-runtime").read_text()
    assert script.startswith(f"#!{site}/opt/edge-1.0/bin/python -I")


def test_what_is_sent_is_written_whole_into_roots_own_folder_by_its_name(site):
    (site / "made").mkdir()
    files = {"one": b"1" * 2_000_000, "two": b"22", "none": b""}
    request = {"store": str(site / "made/store"), "files": {name: len(content) for name, content in files.items()}}

    stock(request, io.BytesIO(b"".join(files.values())))

    assert {path.name: path.read_bytes() for path in (site / "made/store").iterdir()} == files
    with pytest.raises(Conflict, match="two has not arrived whole"):
        stock({**request, "files": {"two": 3}}, io.BytesIO(b"33"))
    assert (site / "made/store/two").read_bytes() == b"22"
    os.chown(site / "made", *people.ids())
    with pytest.raises(Conflict, match="can be changed by others than root"):
        stock(request, io.BytesIO())


@pytest.mark.parametrize("kind", ["flipped", "link", "fifo", "missing"])
def test_a_wheel_that_is_not_what_was_sent_ends_the_step_before_anything_is_switched(site, step, kind):
    wheel = next((site / STORE).glob("numpy-*.whl"))
    if kind == "flipped":
        flip(wheel)
    else:
        wheel.rename(site / "elsewhere")
    if kind == "link":
        wheel.symlink_to(site / "elsewhere")
    if kind == "fifo":
        os.mkfifo(wheel)

    with pytest.raises(Conflict, match=r"numpy-2\.0"):
        step().apply()

    assert list((site / "opt").iterdir()) == []


def test_another_version_or_name_beside_what_was_sent_is_passed_over(site, step):
    made = step()
    little_wheel(site / STORE, "numpy", "99.0")
    little_wheel(site / STORE, "newcomer", "1.0")

    made.apply()

    assert installed(site) == ["edge_deploy-1.0.dist-info", "numpy-2.0.dist-info"]


def test_pip_itself_refuses_what_is_not_locked(site, step):
    """As where somebody changes a wheel between our look and pip's."""
    wrong = f"numpy==2.0 --hash=sha256:{'0' * 64}\n"

    with pytest.raises(Conflict, match=r"(?s)HASH|hashes"):
        step(requirements=wrong).apply()
    with pytest.raises(Conflict, match=r"(?s)require-hashes|hash"):
        step(requirements="numpy==2.0\n").apply()
    assert not (site / "opt/edge").exists()


def test_a_second_version_is_switched_to_of_wheels_that_are_there_the_first_is_kept_and_undo_removes_both(site, step):
    first = step().apply()
    (site / STORE / "numpy-1.0-py3-none-any.whl").write_bytes(b"of a version before")
    again = step("edge-1.1", first)

    assert again.check() == [
        f"install edge-deploy 1.0 in {site}/opt/edge-1.1",
        f"switch {site}/opt/edge from edge-1.0 to edge-1.1",
    ]
    second = again.apply()

    assert second == {"names": ["edge-1.0", "edge-1.1"]}
    assert not (site / STORE / "numpy-1.0-py3-none-any.whl").exists()
    assert step("edge-1.1", second).check() == []
    step("edge-1.1", second).undo(is_real=True, purge=False, gone=set())
    assert list((site / "opt").iterdir()) == list((site / "cache").iterdir()) == []


@pytest.fixture
def install(site, monkeypatch):
    """Return a whole provision of one version behind the others, which returns what it tells."""
    (site / "etc").mkdir()
    monkeypatch.setattr(main, "RECORD", str(site / "etc/provisioned.json"))

    def install(name):
        values = {"kind": "Software", **software_values(site, name)}
        return main.make({"steps": [values], "is_plan": False})["told"]

    return install


def test_the_last_two_versions_stay_and_one_that_something_runs_from_until_that_has_ended_and_is_told(site, install):
    assert install("edge-1.0") == []
    command = [site / "opt/edge-1.0/bin/python", "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as service:
        service.stdout.readline()
        told = [install(name) for name in ("edge-1.1", "edge-1.2")]
        stayed = (site / "opt/edge-1.0/bin/python").exists()
        service.communicate(b"\n")
    told_then = install("edge-1.3")

    assert stayed
    assert ["what runs from edge-1.0" in words for (words,) in told] == [True, True]
    assert told_then == []
    assert {path.name for path in (site / "opt").iterdir()} == {"edge", "edge-1.2", "edge-1.3"}
    main.unmake({"is_plan": False, "purge": False})
    assert list((site / "opt").iterdir()) == []


def test_nothing_is_installed_where_another_user_could_exchange_it(site, step):
    os.chown(site / "opt", *people.ids())

    with pytest.raises(Conflict, match="can be changed by others than root"):
        step().check()


def test_the_facts_name_the_wheels_that_are_there_by_what_is_in_them(tmp_path):
    wheel = little_wheel(tmp_path, "numpy", "2.0")
    (tmp_path / "note.txt").write_text("no wheel")

    told = facts_told(FACTS_SCRIPT.replace(WHEEL_STORE, str(tmp_path)))

    assert told.wheels == {hashlib.sha256(wheel.read_bytes()).hexdigest()}

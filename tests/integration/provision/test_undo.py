"""What is made is noted and taken back, and the plan of that says what then happens."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge.deploy.provision import wanted
from edge.deploy.provision.remote import main
from edge.deploy.provision.wheels import WheelSet
from tests.support import people
from tests.support.wheels import device_facts

pytestmark = [
    people.needs_root,
    pytest.mark.slow_but(
        "test_what_is_made_is_made_once_and_all_of_it_is_taken_back",
        "test_a_fresh_file_system_is_a_folder_for_data_and_is_given_back_as_it_was",
        reason="further first installations",
    ),
]


@pytest.fixture
def site(monkeypatch):
    with people.shared_folder() as folder:
        monkeypatch.setattr(main, "RECORD", str(folder / "etc/provisioned.json"))
        yield folder


@pytest.fixture
def answered(monkeypatch, tmp_path):
    """Return what the whole program answers to a request, as ssh brings it."""
    monkeypatch.setattr(main, "_LOCK", str(tmp_path / "lock"))

    def answered(**request: object) -> dict:
        whole = {"is_undo": False, "is_plan": False, "purge": False, "steps": [], **request}
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(whole).encode() + b"\n")))
        monkeypatch.setattr(sys, "stdout", said := io.StringIO())
        main.main()
        return json.loads(said.getvalue())

    return answered


def folder(path: Path, *, owner: str = "root", group: str = "root", mode: int = 0o755, is_data: bool = False) -> dict:
    values = {"path": str(path), "owner": owner, "group": group, "mode": mode, "is_data": is_data, "is_volatile": False}
    return {"kind": "Directory", **values}


def file(path: Path, content: str) -> dict:
    values = {"path": str(path), "content": content, "mode": 0o644, "owner": "root", "group": "root"}
    return {"kind": "File", **values, "test": None, "is_seed": False}


def steps(site: Path) -> list[dict]:
    other = {"owner": people.NAME, "group": people.GROUP, "is_data": True}
    return [
        folder(site / "etc"),
        folder(site / "etc/credentials", mode=0o700, is_data=True),
        file(site / "etc/unit", "unit\n"),
        folder(site / "data", **other),
        folder(site / "data/store", mode=0o2750, **other),
    ]


def make(site: Path, *, is_plan: bool = False) -> dict:
    return main.make({"steps": steps(site), "is_plan": is_plan})


def unmake(*, is_plan: bool, purge: bool) -> list[str]:
    return main.unmake({"is_plan": is_plan, "purge": purge})["changes"]


def use(site: Path, *, has_credential: bool = True) -> None:
    """Leave what a device in use has: a credential, a release."""
    if has_credential:
        (site / "etc/credentials/gate-east").write_text("user:secret\n")
    (site / "data/store/blob").write_bytes(b"blob")
    os.chown(site / "data/store/blob", *people.ids())


def test_what_is_made_is_made_once_and_all_of_it_is_taken_back(site):
    assert make(site, is_plan=True)["changes"] == make(site)["changes"]
    assert make(site)["changes"] == []
    assert (site / "data/store").stat().st_uid == people.ids()[0]
    assert (site / "data/store").stat().st_mode & 0o7777 == 0o2750

    assert not any(line.startswith("keep") for line in unmake(is_plan=False, purge=False))

    assert list(site.iterdir()) == []


@pytest.mark.parametrize("purge", [False, True], ids=["keeping", "purging"])
def test_a_fresh_file_system_is_a_folder_for_data_and_is_given_back_as_it_was(site, purge):
    store = site / "data"
    store.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", store], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        (store / "lost+found").mkdir(mode=0o700)
        wanted = steps(site)
        wanted[3]["mode"] = 0o2750  # as /var/lib/edge-deploy
        made = main.make({"steps": wanted, "is_plan": False})
        again = main.make({"steps": wanted, "is_plan": False})
        is_given = (store.stat().st_uid, store.stat().st_mode & 0o7777) == (people.ids()[0], 0o2750)
        told = unmake(is_plan=False, purge=purge)
        status = store.stat()
    finally:
        subprocess.run(["umount", store], check=True)

    assert ("conflicts" in made, again["changes"], is_given) == (False, [], True)
    assert (status.st_uid, status.st_mode & 0o7777) == (0, 0o755), told
    assert not any(line.startswith("keep") for line in told)


@pytest.mark.parametrize("is_full", [False, True], ids=["read-only", "full"])
def test_a_path_that_takes_nothing_is_named_with_a_remedy_and_by_the_plan_where_that_can_see_it(
    site, answered, is_full
):
    (site / "etc").mkdir()
    options = "size=4k,mode=0755" if is_full else "ro,mode=0755"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", site / "etc"], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        planned = answered(steps=[file(site / "etc/unit", "unit\n" * 4096)], is_plan=True)
        made = answered(steps=[file(site / "etc/unit", "unit\n" * 4096)])
        spare = {**file(site / "etc/unit", "unit\n"), "is_spare": True}
        left_out = is_full or answered(steps=[spare])["applied"]
    finally:
        subprocess.run(["umount", site / "etc"], check=True)

    remedy = "make room there" if is_full else "mount it to be written"
    assert f"{site}/etc/unit: " in made["failed"]
    assert remedy in made["failed"]
    assert (planned["failed"] == "") == is_full
    assert left_out


@pytest.mark.parametrize(
    "request_", [{"steps": []}, {"is_undo": True}, {"store": "/none", "files": {}}], ids=["make", "undo", "stock"]
)
def test_a_second_provision_is_refused_while_one_is_at_work_and_planned_all_the_same(
    site, answered, request_, tmp_path
):
    (tmp_path / "lock").write_text("pid 1, since long ago, and of more words than the next")

    with main._alone():
        refused, planned = answered(**request_)["failed"], answered(is_plan=True)["failed"]

    assert f"another provision is at work there (pid {os.getpid()}, since 2" in refused
    assert "long" not in refused
    assert planned == answered()["failed"] == ""


@pytest.mark.parametrize("mode", [0o700, 0o2700, 0o711, 0o740])
def test_a_folder_that_was_closed_to_others_is_not_opened(site, mode):
    (site / "data").mkdir()
    (site / "data").chmod(mode)
    wanted = [{**folder(site / "data", owner=people.NAME, group=people.GROUP), "mode": 0o2750}]

    made = main.make({"steps": wanted, "is_plan": False})

    assert "does not widen it" in made["conflicts"][0]
    assert ((site / "data").stat().st_uid, (site / "data").stat().st_mode & 0o7777) == (0, mode)


@pytest.mark.parametrize("purge", [False, True], ids=["keeping", "purging"])
@pytest.mark.parametrize("has_credential", [None, False, True], ids=["fresh", "release", "release and credential"])
def test_the_plan_of_an_undo_says_what_then_happens(site, purge, has_credential):
    make(site)
    if has_credential is not None:
        use(site, has_credential=has_credential)

    planned = unmake(is_plan=True, purge=purge)

    assert planned == unmake(is_plan=False, purge=purge)
    left = ", ".join(sorted(path.name for path in site.glob("etc/*")))
    assert (planned[-1] == f"keep {site}/etc: it holds {left}") == bool(left)


def test_undo_keeps_credentials_and_data_and_purge_removes_both(site):
    make(site)
    use(site)

    kept = unmake(is_plan=False, purge=False)

    assert f"keep {site}/etc/credentials: it holds data (--purge removes it)" in kept
    assert (site / "etc/credentials/gate-east").exists()
    assert set(json.loads((site / "etc/provisioned.json").read_text())) >= {f"Directory {site}/etc/credentials"}

    unmake(is_plan=False, purge=True)

    assert list(site.iterdir()) == []


def test_a_link_on_the_way_is_named_before_anything_is_changed(site):
    make(site)
    (site / "data/store").rmdir()
    (site / "data/store").symlink_to("/etc")
    (site / "etc/unit").unlink()

    answer = make(site)

    assert answer["conflicts"] == [f"{site}/data/store is a link, which is not followed"]
    assert not (site / "etc/unit").exists()


@pytest.mark.parametrize("has_udev", [True, False])
def test_a_rule_of_udev_is_left_out_where_udev_is_not_installed(site, tmp_path, monkeypatch, has_udev):
    (site / "etc").mkdir()
    (tmp_path / "udevadm").write_text(f"#!/bin/sh\necho $1 >>{tmp_path}/told\n")
    (tmp_path / "udevadm").chmod(0o755 if has_udev else 0o644)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    one = wanted.Wanted(name="a", compatible=("any",), networks=None, keys=[], signers=[])
    whole = wanted.steps(one, device_facts(), WheelSet(paths={}, digests={}, requirements="", pip="pip.whl"))
    rules = [{**step, "path": f"{site}{step['path']}"} for step in whole if "/etc/udev" in step["path"]]

    made = main.make({"steps": rules, "is_plan": False})
    (tmp_path / "udevadm").unlink()
    unmake(is_plan=False, purge=False)

    assert len(made["changes"]) == (len(rules) if has_udev else 0)
    assert (tmp_path / "told").exists() == has_udev
    assert not (site / "etc/udev").exists()

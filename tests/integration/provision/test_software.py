"""The software as provision installs it: from what was checked, and deaf to its surroundings."""

import os
import subprocess
import sys
import zipfile

import pytest

from edge.deploy.provision.remote.folders import Conflict
from edge.deploy.provision.remote.software import Software
from tests.support import second_user
from tests.support.little_wheels import little_wheel, real_pip, software_values

pytestmark = [
    second_user.needs_root,
    pytest.mark.slow_but(
        "test_a_program_loads_nothing_that_its_user_or_its_caller_has_put_somewhere",
        reason="further first installations",
    ),
]
PROGRAM = "import os, sys\ndef main():\n    print('dont_write_bytecode', sys.flags.dont_write_bytecode)\n"


@pytest.fixture
def site():
    with second_user.shared_folder() as folder:
        (folder / "opt").mkdir()
        (folder / "sent").mkdir()
        yield folder


@pytest.fixture
def step(site):
    """Install a program `edge-runtime` from two wheels, pip's and its own."""
    real_pip(site / "sent")
    wheel = little_wheel(site / "sent", "edge-deploy")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("edge_program.py", PROGRAM)
        archive.writestr(
            "edge_deploy-1.0.dist-info/entry_points.txt", "[console_scripts]\nedge-runtime = edge_program:main\n"
        )
    return Software(software_values(site, "edge-1.0"), None)


def test_a_program_loads_nothing_that_its_user_or_its_caller_has_put_somewhere(site, step):
    step.apply()
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


def test_a_wheel_that_is_exchanged_after_it_was_checked_is_not_what_is_installed(site, step, monkeypatch):
    from edge.deploy.provision.remote import software

    def then_exchanged(command: list[str]) -> None:
        if "pip" in command[1]:
            for path in (site / "sent").iterdir():
                path.write_bytes(b"exchanged")
        real(command)

    real = software.run
    monkeypatch.setattr(software, "run", then_exchanged)

    step.apply()

    assert (site / "opt/edge/bin/edge-runtime").exists()


@pytest.mark.parametrize("kind", ["link", "fifo", "missing"])
def test_a_wheel_that_is_not_what_was_sent_ends_the_step_before_anything_is_switched(site, step, kind):
    wheel = next((site / "sent").glob("edge_deploy-*.whl"))
    content = wheel.read_bytes()
    wheel.unlink()
    if kind == "link":
        (site / "elsewhere").write_bytes(content)
        wheel.symlink_to(site / "elsewhere")
    if kind == "fifo":
        os.mkfifo(wheel)

    with pytest.raises(Conflict):
        step.apply()

    assert not (site / "opt/edge").exists()


def test_a_second_version_is_switched_to_the_first_is_kept_and_undo_removes_both(site, step):
    first = step.apply()
    again = Software(software_values(site, "edge-1.1"), first)

    assert again.check() == [
        f"install edge-deploy 1.0 in {site}/opt/edge-1.1",
        f"switch {site}/opt/edge from edge-1.0 to edge-1.1",
    ]
    second = again.apply()

    assert second == {"names": ["edge-1.0", "edge-1.1"]}
    assert Software(software_values(site, "edge-1.1"), second).check() == []
    Software(software_values(site, "edge-1.1"), second).undo(is_real=True, purge=False, gone=set())
    assert list((site / "opt").iterdir()) == list((site / "cache").iterdir()) == []


def test_nothing_is_installed_where_another_user_could_exchange_it(site, step):
    os.chown(site / "opt", *second_user.ids())

    with pytest.raises(Conflict, match="can be changed by others than root"):
        step.check()

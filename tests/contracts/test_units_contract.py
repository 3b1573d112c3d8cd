"""What both `Units` do, and the exact command lines of the real one."""

import pytest

from edge.device.units import SystemctlUnits
from edge.errors import DeployError
from tests.support.raised import code_of
from tests.support.units import FakeSystemctl, FakeUnits
from tests.support.wait import wait_until

GOOD, BAD = "edge-runtime.service", "edge-build.service"


@pytest.fixture(params=["systemctl", "fake"])
def units(request, tmp_path):
    if request.param == "fake":
        return FakeUnits(GOOD, failing=(BAD,))
    return SystemctlUnits(str(FakeSystemctl(tmp_path, GOOD, failing=(BAD,)).path), sudo=())


def test_a_unit_that_was_started_is_active(units):
    units.start(GOOD, wait=True, timeout_s=60)

    assert units.state(GOOD).active == "active"
    assert not units.state(GOOD).has_failed


def test_a_restart_is_another_invocation(units):
    units.restart(GOOD)
    before = units.state(GOOD).invocation
    units.restart(GOOD)

    assert before
    assert units.state(GOOD).invocation not in ("", before)


def test_a_unit_that_fails_says_so_until_it_is_reset(units):
    with pytest.raises(DeployError) as caught:
        units.start(BAD, wait=True, timeout_s=60)

    assert caught.value.code == "device.systemd"
    assert BAD in str(caught.value)
    assert units.state(BAD).has_failed
    units.reset_failed(BAD)
    assert not units.state(BAD).has_failed


def test_a_unit_that_is_not_there(units):
    assert units.state("edge-other.service").active == "inactive"
    with pytest.raises(DeployError, match="not found"):
        units.restart("edge-other.service")


def test_the_command_lines_are_those_that_sudo_allows(tmp_path):
    systemctl = FakeSystemctl(tmp_path, GOOD, BAD, "edge-trial.service")
    sudo = tmp_path / "sudo"
    sudo.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {tmp_path}/sudoed\nshift\nexec "$@"\n')
    sudo.chmod(0o755)
    units = SystemctlUnits(str(systemctl.path), sudo=(str(sudo), "-n"))

    units.start("edge-build.service", wait=True, timeout_s=60)
    units.start("edge-trial.service", wait=False, timeout_s=60)
    wait_until(lambda: len(systemctl.calls) == 2, what="started alone")
    units.restart("edge-runtime.service")
    units.reset_failed("edge-runtime.service")
    units.state("edge-runtime.service")

    assert (tmp_path / "sudoed").read_text().splitlines() == [
        f"-n {systemctl.path} start edge-build.service",
        f"-n {systemctl.path} start edge-trial.service",
        f"-n {systemctl.path} restart edge-runtime.service",
        f"-n {systemctl.path} reset-failed edge-runtime.service",
    ]
    assert systemctl.calls[-1][0] == "show"  # and that without sudo


def stop_command(start_time: str) -> str:
    """What systemd 252 says of a command in ExecStop=."""
    return (
        f"ExecStop={{ path=/usr/bin/true ; argv[]=/usr/bin/true ; ignore_errors=yes ; start_time=[{start_time}] ; "
        "stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }"
    )


@pytest.mark.parametrize(
    ("told", "has_failed"),
    [
        (("ActiveState=failed", "Result=exit-code", stop_command("n/a")), True),
        (("ActiveState=failed", "Result=timeout", stop_command("Sun 2026-11-22 06:30:18 UTC")), False),
        (("ActiveState=failed", "Result=oom-kill", stop_command("Sun 2026-11-22 06:30:18 UTC")), True),
        (("ActiveState=failed", "Result=start-limit-hit", stop_command("Sun 2026-11-22 06:30:18 UTC")), True),
        (("ActiveState=failed", "Result=timeout"), True),
        (("ActiveState=inactive", "Result=success", stop_command("Sun 2026-11-22 06:30:18 UTC")), False),
    ],
    ids=[
        "crashed",
        "killed on its way down",
        "out of memory",
        "restarted too often",
        "nothing that tells a stop",
        "stopped",
    ],
)
def test_a_unit_that_was_told_to_stop_has_not_failed_however_it_ended(tmp_path, told, has_failed):
    (tmp_path / "systemctl").write_text("#!/bin/sh\ncat <<'EOF'\n" + "\n".join(told) + "\nEOF\n")
    (tmp_path / "systemctl").chmod(0o755)

    assert SystemctlUnits(str(tmp_path / "systemctl"), sudo=()).state(GOOD).has_failed == has_failed


@pytest.mark.parametrize("program", ["/nowhere/systemctl", "/dev/null"])
def test_without_systemd_it_is_a_typed_error(program):
    units = SystemctlUnits(program, sudo=())

    for call in (units.restart, units.reset_failed, units.state):
        assert code_of(call, GOOD) == "device.systemd"


def test_a_systemctl_that_hangs_has_a_deadline(tmp_path):
    (tmp_path / "systemctl").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "systemctl").chmod(0o755)

    with pytest.raises(DeployError, match=r"no answer within 0\.2 s"):
        SystemctlUnits(str(tmp_path / "systemctl"), sudo=()).start(GOOD, wait=True, timeout_s=0.2)

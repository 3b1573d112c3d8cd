"""What becomes of a `systemctl` that is left to go on alone; what both `Units` do is in the contract."""

import os
from pathlib import Path

import pytest

from edge.device.units import SystemctlUnits
from edge.errors import DeployError
from tests.support.wait import wait_until

WAITS = """#!/bin/sh
echo $$ > {folder}/began.part
mv {folder}/began.part {folder}/began
read line < {folder}/end
"""


def test_a_start_that_is_not_waited_for_returns_while_systemctl_runs_and_leaves_no_zombie(tmp_path):
    (tmp_path / "systemctl").write_text(WAITS.format(folder=tmp_path))
    (tmp_path / "systemctl").chmod(0o755)
    os.mkfifo(tmp_path / "end")

    SystemctlUnits(str(tmp_path / "systemctl"), sudo=()).start("edge-trial.service", wait=False, timeout_s=20)

    wait_until((tmp_path / "began").exists, what="systemctl runs")
    process = Path("/proc", (tmp_path / "began").read_text().strip())
    assert process.exists()
    (tmp_path / "end").write_text("now\n")
    wait_until(lambda: not process.exists(), what="systemctl has ended, and is no zombie")


@pytest.mark.parametrize("program", ["/nowhere/systemctl", "/dev/null"])
def test_a_start_that_is_not_waited_for_says_that_there_is_no_systemctl(program):
    with pytest.raises(DeployError, match=f"^{program} start edge-trial.service: ") as failure:
        SystemctlUnits(program, sudo=()).start("edge-trial.service", wait=False, timeout_s=20)
    assert failure.value.code == "device.systemd"


SHOWS = """#!/bin/sh
printf 'ActiveState=failed\\nResult=exit-code\\nExecMainStatus=78\\nStatusText=%s\\n' "{status}"
"""


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        ("error: credential 'gate' is not here", "credential 'gate' is not here"),
        ("error: \033[2J\u202egone", "?[2J?gone"),
        ("error: " + "x" * 5000, "x" * 393),
        ("2/2 streams, 30 fps", None),
        ("", None),
    ],
    ids=["words", "escapes", "long", "running", "silent"],
)
def test_the_error_that_a_service_ended_with_is_told_in_its_own_words(tmp_path, status, failure):
    (tmp_path / "systemctl").write_text(SHOWS.format(status=status))
    (tmp_path / "systemctl").chmod(0o755)
    assert SystemctlUnits(str(tmp_path / "systemctl"), sudo=()).state("edge-runtime.service").failure == failure

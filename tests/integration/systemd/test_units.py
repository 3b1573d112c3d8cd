"""The units, sudoers and sysusers that we ship, judged by systemd and sudo themselves."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

SHIPPED = Path(__file__).parents[3] / "systemd"
UNITS = sorted(path.name for path in SHIPPED.iterdir() if path.suffix in (".service", ".socket", ".timer"))
SERVICES = [name for name in UNITS if name.endswith(".service")]
# Tenths of systemd's figure: 0 is the tightest, 100 a unit without any protection (docs: systemd-analyze security).
# The agent is what sshd starts for a push, too: sudo takes no tighter one.
MOST_EXPOSURE = {"edge-runtime.service": 15, "edge-pull.service": 13, "edge-agent@.service": 76}
MOST_EXPOSURE_OF_OTHERS = 7

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, encoding="utf-8", timeout=60)


def _knows_offline() -> bool:
    return shutil.which("systemd-analyze") is not None and "--offline" in analyze("--help").stdout


without_systemd_249 = pytest.mark.skipif(not _knows_offline(), reason="this systemd-analyze reads no unit offline")


@pytest.fixture
def folder(tmp_path):
    """The units as they are, but for the program, which is not installed here."""
    for name in UNITS:
        text = (SHIPPED / name).read_text()
        (tmp_path / name).write_text(re.sub(r"/opt/edge/bin/edge-runtime", "/bin/true", text))
    return tmp_path


def test_these_units_are_shipped():
    services = ("agent@", "build", "pull", "recover", "rollback", "runtime", "software", "trial")
    assert sorted([f"edge-{name}.service" for name in services] + ["edge-agent.socket", "edge-pull.timer"]) == UNITS


def test_verify_is_silent(folder):
    done = analyze("verify", *(str(folder / name) for name in UNITS))

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_verify_is_not_silent_about_a_comment_at_the_end_of_a_line(folder):
    unit = folder / "edge-runtime.service"
    unit.write_text(unit.read_text().replace("WatchdogSec=30s", "WatchdogSec=30s  # fed by batches"))

    assert re.search("Failed to parse .*30s", analyze("verify", str(unit)).stderr)


@without_systemd_249
@pytest.mark.parametrize("name", SERVICES)
def test_exposure_is_within_its_limit(name):
    most = MOST_EXPOSURE.get(name, MOST_EXPOSURE_OF_OTHERS)

    done = analyze("security", "--offline=yes", "--no-pager", f"--threshold={most}", str(SHIPPED / name))

    assert done.returncode == 0, done.stdout[-300:]


@without_systemd_249
def test_exposure_without_protection_is_above_the_limit(tmp_path):
    bare = tmp_path / "bare.service"
    bare.write_text("[Service]\nExecStart=/bin/true\n")

    assert analyze("security", "--offline=yes", "--no-pager", "--threshold=15", str(bare)).returncode != 0


@pytest.mark.skipif(shutil.which("visudo") is None, reason="visudo is not installed")
def test_sudoers_is_accepted_and_has_four_lines_without_a_wildcard():
    text = (SHIPPED / "sudoers").read_text()

    done = subprocess.run(["visudo", "-cqf", SHIPPED / "sudoers"], capture_output=True, text=True, timeout=30)

    assert done.returncode == 0, done.stderr
    assert re.findall(r"/usr/bin/systemctl ([^,\\\n]+)", text) == [
        "start edge-build.service",
        "start edge-trial.service",
        "restart edge-runtime.service",
        "reset-failed edge-runtime.service",
    ]
    assert "*" not in text


def test_a_failed_trial_and_a_failed_runtime_have_the_same_way_back():
    for name in ("edge-trial.service", "edge-runtime.service"):
        assert "OnFailure=edge-rollback.service" in (SHIPPED / name).read_text()


def test_the_way_back_asks_first_whether_anything_has_failed():
    unit = (SHIPPED / "edge-rollback.service").read_text()

    asks = "ExecCondition=/opt/edge/bin/edge-runtime rollback --reason unit-failed --is-needed"
    assert unit.index(asks) < unit.index("ExecStart=")


def test_nothing_pulls_recovery_into_a_restart():
    for name in UNITS:
        assert not re.search(r"^(Requires|Wants|BindsTo)=.*edge-recover", (SHIPPED / name).read_text(), re.MULTILINE)

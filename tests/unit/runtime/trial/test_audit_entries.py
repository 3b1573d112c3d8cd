"""What a device decides by itself stands in the audit log, beside what people asked of it."""

from edge.device.units import RUNTIME_UNIT
from edge.errors import DeployError
from edge.runtime.trial.rollback import go_back, go_to, recover_at_boot
from edge.runtime.trial.trial import REFUSED, run_trial
from tests.support.device_releases import serving
from tests.support.logged import logged
from tests.support.units import FakeUnits, failed_units


def recorded(device):
    lines = device.audit.lines(100)
    assert {(line["who"], line["from"]) for line in lines} <= {("device", "local")}
    return [(line["what"], line["release"], line["result"]) for line in lines]


def test_a_commit(device, switched):
    _, new, service = switched
    assert run_trial(device, FakeUnits(RUNTIME_UNIT), service.trial()) == 0

    ((what, release, result),) = recorded(device)
    assert (what, release) == ("trial", new)
    assert result.startswith("committed: ")


def test_a_refusal_and_the_way_back(device, switched):
    old, new, service = switched
    service.fps = 0.0
    assert run_trial(device, FakeUnits(RUNTIME_UNIT), service.trial()) == REFUSED
    go_back(device, FakeUnits(RUNTIME_UNIT), "unit-failed")

    refused, back = recorded(device)
    assert refused[:2] == ("trial", new)
    assert refused[2].startswith("refused: ")
    assert "stream east" in refused[2]
    assert back[:2] == ("rollback", new)
    assert back[2].startswith("went back: ")
    assert back[2].endswith(f"; {old} is current")


def test_a_way_back_that_finds_nothing_to_go_back_to(device):
    release = serving(device)
    for _ in range(4):
        try:
            go_back(device, failed_units(), "unit-failed")
        except DeployError as error:
            last = error

    found = recorded(device)
    assert [what for what, _, _ in found] == ["rollback"] * 4
    assert found[-1] == ("rollback", release, f"person.failed: {last.problem}")


def test_a_way_back_asked_for_on_the_device(device):
    old = serving(device, sequence=1)
    serving(device, sequence=2)
    go_to(device, old)

    assert recorded(device) == [("rollback", old, "on trial, asked for on the device")]


def test_a_way_back_without_a_reason_leaves_no_line(device):
    serving(device)
    go_back(device, FakeUnits(RUNTIME_UNIT), "unit-failed")

    assert recorded(device) == []


def test_a_boot_that_finds_all_in_order_leaves_no_line_and_one_that_mends_something_does(device, switched, later):
    _, new, _ = switched
    recover_at_boot(device, moment=later)
    assert recorded(device) == [("recover", new, "the trial begins again after a power cut")]
    recover_at_boot(device, moment=later)
    assert len(recorded(device)) == 1


def test_a_log_that_cannot_be_written_does_not_stop_the_way_back(device, switched, caplog):
    old, _, _ = switched
    device.layout.audit.mkdir()
    assert go_back(device, failed_units(), "unit-failed").release == old
    assert "audit-not-written" in logged(caplog)

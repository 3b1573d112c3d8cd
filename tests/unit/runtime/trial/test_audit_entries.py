"""What a device decides by itself stands in the audit log, beside what people asked of it."""

from edge.device.units import RUNTIME_UNIT
from edge.runtime.trial.rollback import go_back, recover_at_boot
from edge.runtime.trial.trial import REFUSED, run_trial
from tests.support.logged import logged
from tests.support.trial_service import recorded
from tests.support.units import FakeUnits, failed_units


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

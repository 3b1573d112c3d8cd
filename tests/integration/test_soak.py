"""Five minutes of `make soak`: what has to hold on any machine, however loaded. Times and memory are `make soak`'s."""

import shutil
from pathlib import Path

import pytest

from tests.soak.soak import soak
from tests.support.rtsp import require_gstreamer

pytestmark = [pytest.mark.integration, pytest.mark.soak]
SEED = 12  # make soak ARGS="--minutes 5 --cameras 4 --seed 12" is the same run
SAID = Path(__file__).parents[2] / "out/soak-failed.log"


def test_five_minutes_of_faults_lose_nothing_unsaid_mix_no_pictures_and_leave_nothing_behind(tmp_path):
    require_gstreamer("rtspsrc", "rtph264depay", "avdec_h264", "avdec_h265", server=True)

    account = soak(tmp_path, minutes=5, cameras=4, seed=SEED)

    if account.broken:
        SAID.parent.mkdir(exist_ok=True)
        shutil.copy(tmp_path / "told.txt", SAID)
    faults = ", ".join(f"{one.kind} {one.stream or ''}".strip() for one in account.outages)
    assert account.broken == [], f"the service's log: {SAID}; what was done: {faults}"
    assert account.received > 1000
    assert len(account.outages) >= 12, "each kind of fault"

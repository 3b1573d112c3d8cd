"""How the bench finds the greatest number of live streams, and what it takes for lost."""

from collections import Counter

import pytest

from tests.bench.capacity import MOST_LOST, CapacityRow, Window, greatest, samples_of, window_between
from tests.bench.capacity_page import render_capacity

BEFORE = """# HELP edge_frames_total frames by what became of them
# TYPE edge_frames_total counter
edge_frames_decoded_total{stream="s0"} 100
edge_frames_decoded_total{stream="s1"} 100
edge_frames_total{stream="s0",outcome="inferred"} 90
edge_frames_total{stream="s0",outcome="dropped_replaced"} 10
edge_pictures_skipped_total{stream="s0"} 0
process_cpu_seconds_total 5.5
"""
AFTER = """edge_frames_decoded_total{stream="s0"} 250
edge_frames_decoded_total{stream="s1"} 250
edge_frames_total{stream="s0",outcome="inferred"} 236
edge_frames_total{stream="s0",outcome="dropped_replaced"} 12
edge_frames_total{stream="s1",outcome="dropped_stale"} 1
edge_pictures_skipped_total{stream="s0"} 3
process_cpu_seconds_total 17.5
"""


@pytest.mark.parametrize("true", [0, 1, 2, 5, 8, 9, 10, 23, 40])
@pytest.mark.parametrize("guess", [0, 1, 4, 9, 30])
def test_the_greatest_number_is_found_from_any_guess(guess, true):
    asked = []

    def is_served(count):
        asked.append(count)
        return count <= true

    assert greatest(is_served, guess) == (true, true + 1)
    assert len(set(asked)) == len(asked)
    assert min(asked) >= 1


def test_a_guess_that_is_right_takes_two_questions():
    asked = []
    greatest(lambda count: asked.append(count) or count <= 12, 12)

    assert asked == [12, 13]


def test_only_what_happened_meanwhile_counts_and_pictures_that_were_not_decoded_are_lost():
    window = window_between(samples_of(BEFORE), samples_of(AFTER), streams=2, seconds=10.0, wanted=300.0)

    assert window.decoded == 300
    assert window.lost == Counter(replaced=2, stale=1, skipped=3)
    assert window.lost_share == pytest.approx(6 / 300)
    assert (window.cores, window.rate) == (1.2, 1.0)


def served(lost, *, decoded=3000, wanted=3000.0):
    return Window(streams=3, seconds=10.0, wanted=wanted, decoded=decoded, lost=Counter(replaced=lost)).is_served


def test_what_is_lost_or_late_is_not_served():
    assert served(int(MOST_LOST * 3000))
    assert not served(int(MOST_LOST * 3000) + 1)
    assert not served(0, decoded=2900)  # decoders that are late lose no frame, they give fewer


def test_the_page_tells_prediction_and_truth():
    def window(streams, lost):
        return Window(
            streams=streams, seconds=10.0, wanted=1000.0, decoded=1000, lost=Counter(replaced=lost), cpu_s=18.0
        )

    row = CapacityRow(
        model="net", video="640x360 at 15 fps", predicted=12, predicted_with_headroom=8, runs_out="processor",
        found=window(10, 0), beyond=window(11, 25),
    )  # fmt: skip
    nothing = CapacityRow(
        model="huge", video="640x360 at 15 fps", predicted=0, predicted_with_headroom=0, runs_out="processor",
        found=None, beyond=window(1, 500),
    )  # fmt: skip

    lines = list(render_capacity([row, nothing], seconds=10.0))

    assert lines[-3] == (
        "| net | 640x360 at 15 fps | 12 | **10** | +20% | 8 | 80% | processor | 1.80 "
        "| 11: replaced 2.5% | 100% | 1.80 |"
    )
    assert lines[-2] == (
        "| huge | 640x360 at 15 fps | 0 | **0** | ? | 0 | ? | processor | ? | 1: replaced 50.0% | 100% | 1.80 |"
    )
    assert {line.count("|") for line in lines if line.startswith("|")} == {13}

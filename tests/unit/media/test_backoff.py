import pytest

from edge.media.probe import CameraBackoff


def middle(low: float, high: float) -> float:
    return (low + high) / 2


def delays(backoff: CameraBackoff, count: int) -> list[float]:
    return [backoff.delay_s(streamed_s=0.0, is_refused=False) for _ in range(count)]


def test_wait_doubles_up_to_three_seconds():
    assert delays(CameraBackoff(middle), 5) == [0.5, 1, 2, 3, 3]


def test_ten_healthy_seconds_begin_anew():
    backoff = CameraBackoff(middle)
    delays(backoff, 5)

    assert backoff.delay_s(streamed_s=9.9, is_refused=False) == 3
    assert backoff.delay_s(streamed_s=10.0, is_refused=False) == 0.5


def test_refusal_waits_half_a_minute():
    assert CameraBackoff(middle).delay_s(streamed_s=0.0, is_refused=True) == 30


@pytest.mark.parametrize(("cost_s", "expected"), [(0.4, 0.5), (1.0, 30.0), (8.0, 240.0)])
def test_what_was_dear_and_gave_nothing_takes_a_thirtieth_of_a_core_at_most(cost_s, expected):
    assert CameraBackoff(middle).delay_s(streamed_s=0.0, is_refused=False, cost_s=cost_s) == expected


@pytest.mark.parametrize(("uniform", "expected"), [(min, 0.4), (max, 0.6)])
def test_jitter_is_a_fifth(uniform, expected):
    assert CameraBackoff(uniform).delay_s(streamed_s=0.0, is_refused=False) == pytest.approx(expected)

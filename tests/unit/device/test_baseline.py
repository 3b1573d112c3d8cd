import threading
import time

from edge.device.health import encode_health, measure_baseline
from tests.support.values import health


def _health(at_ns, *, inferred, state="up", invocation="1", acknowledged=0):
    told = {"at_boottime_ns": at_ns, "invocation": invocation, "mqtt_acknowledged": acknowledged}
    return health({"gate": (state, inferred)}, **told)


def _measured(tmp_path, first, second):
    """Return the baseline when the file changes from one snapshot to the next while it is measured."""
    path = tmp_path / "health.json"
    path.write_bytes(encode_health(first))
    writer = threading.Timer(0.2, path.write_bytes, [encode_health(second)])
    writer.start()
    try:
        return measure_baseline(path, release="a" * 12)
    finally:
        writer.join()


def test_rates_are_differences_over_the_time_between_two_snapshots(tmp_path):
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    baseline = _measured(
        tmp_path,
        _health(now, inferred=100, acknowledged=10),
        _health(now + 2_000_000_000, inferred=130, acknowledged=14),
    )
    assert baseline["streams"] == {"gate": 15.0}
    assert baseline["mqtt_per_s"] == 2.0
    assert baseline["infer_p95_ms"] == 4.0


def test_a_stream_that_is_down_has_no_rate_to_be_held_against(tmp_path):
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    baseline = _measured(tmp_path, _health(now, inferred=5), _health(now + 2_000_000_000, inferred=5, state="down"))
    assert baseline["streams"] == {}


def test_a_service_that_was_started_again_meanwhile_has_no_baseline(tmp_path):
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    after = _health(now + 2_000_000_000, inferred=5, invocation="2")
    assert _measured(tmp_path, _health(now, inferred=100), after) == {}


def test_nothing_served_or_an_old_file_is_no_baseline(tmp_path):
    path = tmp_path / "health.json"
    assert measure_baseline(path, release="a" * 12) == {}
    path.write_bytes(encode_health(_health(time.clock_gettime_ns(time.CLOCK_BOOTTIME) - 10**10, inferred=1)))
    assert measure_baseline(path, release="a" * 12) == {}
    path.write_bytes(b"{half")
    assert measure_baseline(path, release="a" * 12) == {}

"""The judge on made-up seconds: what was seen of a service, once a second, and the verdict that a person would give."""

from dataclasses import replace

import pytest

from edge.bundle.manifest import HealthLimits
from edge.reports import UnitState
from edge.runtime.trial.trial import Baseline, Observation, TrialVerdict, baseline_from_state, judge_trial
from tests.support.values import health

RUNNING = UnitState(active="active", sub="running", invocation="run-1")
STARTING = UnitState(active="activating", sub="start", invocation="run-1")
LIMITS = HealthLimits(hold_s=20, deadline_s=60)
BASELINE = Baseline(rates={"east": 10.0, "west": 10.0}, infer_p95_ms=20.0, mqtt_connected=True, mqtt_per_s=10.0)
S = 1_000_000_000


def second(
    number, *, unit=RUNNING, fps=None, p95=20.0, age=50.0, mqtt=True, acknowledged=None, free=2**30, states=None, **odd
):
    """What is seen `number` seconds after the switch of a service that was ready at once and gives `fps`."""
    fps = {"east": 10, "west": 10} if fps is None else fps
    said = health(
        **{"release": "new", "invocation": unit.invocation, "at_boottime_ns": number * S, **odd},
        batches=number,
        infer_p95_ms=p95,
        age_p95_ms=age,
        mqtt_connected=mqtt,
        mqtt_acknowledged=10 * number + 1 if acknowledged is None else acknowledged,
        streams={name: ((states or {}).get(name, "up"), int(rate * number)) for name, rate in fps.items()},
    )
    return Observation(at_ns=number * S, unit=unit, health=said, available_bytes=free)


def silent(number, *, unit=STARTING, free=2**30):
    return Observation(at_ns=number * S, unit=unit, health=None, available_bytes=free)


def verdict(seen, *, baseline=BASELINE, limits=LIMITS):
    return judge_trial(baseline, limits, seen, release="new", started_ns=0)


def run(seconds, **how):
    return [second(number, **how) for number in range(seconds + 1)]


def test_what_is_well_for_as_long_as_asked_is_good_and_not_sooner():
    # The first window of 10 s ends at second 10, from then on 20 s are held.
    assert verdict(run(29)).verdict is TrialVerdict.WAIT
    assert verdict(run(30)).verdict is TrialVerdict.GOOD


def test_a_slow_start_only_costs_time():
    seen = [silent(number) for number in range(15)] + [second(number) for number in range(15, 46)]

    assert verdict(seen[:-1]).verdict is TrialVerdict.WAIT
    assert verdict(seen).verdict is TrialVerdict.GOOD


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"fps": {"east": 10, "west": 0}}, "stream west"),
        ({"fps": {"east": 10, "west": 7}}, "stream west: 7.00 frames per second, 8.00 expected"),
        ({"p95": 25.0}, "inference takes 25.0 ms (p95), at most 24.0 ms expected"),
        ({"mqtt": False}, "the broker is not connected, and was before"),
        ({"acknowledged": 0}, "the broker has acknowledged nothing"),
        ({"acknowledged": 7}, "the broker acknowledges nothing any more"),
        ({"p95": 25.0, "mqtt": False}, "the broker is not connected, and was before; inference takes 25.0 ms"),
        ({"fps": {"east": 0, "west": 7}, "p95": 25.0}, "expected; stream east: no frame yet; stream west: 7.00"),
    ],
    ids=["no-frames", "slow-stream", "f21-p95", "mqtt-down", "mqtt-never", "mqtt-stuck", "two-causes", "streams"],
)
def test_what_is_worse_than_before_is_refused_at_the_deadline_and_not_sooner(how, says):
    assert verdict(run(59, **how)).verdict is TrialVerdict.WAIT

    judged = verdict(run(60, **how))

    assert judged.verdict is TrialVerdict.BAD
    assert says in judged.reason


@pytest.mark.parametrize(
    "how",
    [
        {"fps": {"east": 10, "west": 8}},
        {"p95": 24.0},
        {"fps": {"east": 10, "west": 10, "north": 0}, "states": {"north": "down"}},
        {"fps": {"east": 10}},
        {"fps": {"east": 10, "west": 0}, "states": {"west": "ended"}},
    ],
    ids=["four-fifths", "slowdown-allowed", "new-stream-is-down", "stream-left-out", "file-at-its-end"],
)
def test_what_is_good_enough(how):
    assert verdict(run(30, **how)).verdict is TrialVerdict.GOOD


def test_of_many_causes_the_first_are_told_and_the_others_counted():
    rates = {f"camera-{number}": 10.0 for number in range(9)}

    judged = verdict(run(60, fps=dict.fromkeys(rates, 5)), baseline=Baseline(rates=rates))

    assert ("camera-4" in judged.reason, "camera-5" in judged.reason) == (True, False)
    assert judged.reason.endswith("; and 4 more")


def test_an_interruption_begins_the_time_anew():
    seen = run(60)
    seen[25] = silent(25, unit=RUNNING)

    # From second 36 on there is a whole window without the hole, and 20 s later it is good.
    assert verdict(seen[:56]).verdict is TrialVerdict.WAIT
    assert verdict(seen[:57]).verdict is TrialVerdict.GOOD


CRASHED = UnitState(active="activating", sub="auto-restart", result="exit-code", invocation="run-1", exit_status=1)


@pytest.mark.parametrize(
    ("last", "says"),
    [
        (
            silent(6, unit=UnitState(active="failed", sub="failed", result="exit-code", exit_status=78)),
            "exit status 78",
        ),
        (silent(6, unit=replace(CRASHED, failure="no camera")), "exit status 1: no camera"),
        (silent(6, unit=CRASHED), "started again: exit-code"),
        (silent(6, unit=replace(CRASHED, result="watchdog")), "started again: watchdog"),
        (silent(6, unit=replace(CRASHED, result="oom-kill")), "started again: oom-kill"),
        (second(6, unit=replace(RUNNING, invocation="run-2")), "started again"),
        (second(6, unit=replace(RUNNING, restarts=1)), "started again"),
        (second(6, free=100), "100 bytes of memory are left"),
    ],
    ids=["failed", "crash-with-words", "crash", "watchdog", "oom", "other-run", "restarts", "memory"],
)
def test_f21_a_hard_fault_ends_the_trial_at_once(last, says):
    judged = verdict([*run(5), last])

    assert judged.verdict is TrialVerdict.BAD
    assert says in judged.reason


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        ([silent(number) for number in range(61)], "activating"),
        (run(60, fps={"east": 0, "west": 0}, acknowledged=3), "stream east"),
        (run(60, release="old"), "does not say how it stands"),
        (run(60, invocation="run-0"), "does not say how it stands"),
        ([second(number, at_boottime_ns=(number - 6) * S) for number in range(61)], "does not say how it stands"),
    ],
    ids=["never-ready", "no-frames", "health-of-another-release", "health-of-another-run", "stale-health"],
)
def test_f21_what_does_not_come_to_frames_is_refused_at_the_deadline(seen, says):
    judged = verdict(seen)

    assert judged.verdict is TrialVerdict.BAD
    assert says in judged.reason


@pytest.mark.parametrize(
    "before",
    [Baseline(rates={"east": 10.0}, infer_p95_ms=20.0, mqtt_connected=False), Baseline(rates={"east": 10.0})],
    ids=["down", "not-there"],
)
def test_f22_what_was_down_before_or_was_not_there_is_not_blamed_but_named(before):
    seen = run(30, fps={"east": 10, "west": 0}, mqtt=False, acknowledged=0, states={"west": "down"})

    judged = verdict(seen, baseline=before)

    assert judged.verdict is TrialVerdict.GOOD
    assert [one.partition(";")[0] for one in judged.warnings] == [
        "stream west: no frames (down)",
        "the broker is not connected",
    ]
    assert all("new or" in one and "as before" not in one for one in judged.warnings)


def test_f22_memory_that_was_short_before_is_not_blamed():
    before = replace(BASELINE, available_bytes=LIMITS.min_available_bytes - 1)

    judged = verdict(run(30, free=100), baseline=before)

    assert judged.verdict is TrialVerdict.GOOD
    assert f"100 bytes of memory are left, {before.available_bytes} were before" in judged.warnings
    assert verdict([second(1, free=100)]).warnings == ()  # it is why the release is refused, and was not so before


def test_without_a_release_before_it_is_judged_by_itself():
    assert verdict(run(30, p95=900.0), baseline=Baseline()).verdict is TrialVerdict.GOOD
    assert verdict([silent(number) for number in range(61)], baseline=Baseline()).verdict is TrialVerdict.BAD


def test_limits_of_the_manifest_come_before_the_release_before():
    limits = HealthLimits(hold_s=20, deadline_s=60, infer_p95_ms=40.0, age_p95_ms=60.0)

    assert verdict(run(30, p95=39.0), limits=limits).verdict is TrialVerdict.GOOD
    assert verdict(run(60, p95=41.0), limits=limits).verdict is TrialVerdict.BAD
    assert "old (p95)" in verdict(run(60, age=61.0), limits=limits).reason


def test_a_slow_stream_may_miss_one_frame_of_a_window():
    before = Baseline(rates={"east": 0.2})

    # 0.25 of 0.3 is enough, but 10 seconds hold 2 frames or 3, and 2.4 are wanted.
    assert verdict(run(30, fps={"east": 0.25}), baseline=Baseline(rates={"east": 0.3})).verdict is TrialVerdict.GOOD
    assert verdict(run(30, fps={"east": 0.2}), baseline=before).verdict is TrialVerdict.GOOD
    assert verdict(run(60, fps={"east": 0.0}), baseline=before).verdict is TrialVerdict.BAD


def test_the_baseline_of_a_state_knows_what_was_up():
    values = {"streams": {"east": 9.5, "west": 0.0}, "infer_p95_ms": 20.0, "mqtt_connected": True, "mqtt_per_s": 9.0}

    assert baseline_from_state(values) == Baseline(
        rates={"east": 9.5}, infer_p95_ms=20.0, mqtt_connected=True, mqtt_per_s=9.0
    )


def test_a_trial_says_that_it_compares_with_nothing_where_nothing_was_measured():
    found = verdict(run(30), baseline=baseline_from_state({}))
    assert (found.verdict, ["nothing is compared" in one for one in found.warnings]) == (TrialVerdict.GOOD, [True])


@pytest.mark.parametrize("lie", [{"streams": {"east": 1e9}}, {"infer_p95_ms": 1e-9}, {"infer_p95_ms": 0.0}])
def test_a_release_is_not_held_to_what_the_one_before_cannot_have_done(lie):
    told = {"streams": {"east": 10.0, "west": 10.0}, "infer_p95_ms": 20.0, "available_bytes": 7, **lie}
    baseline = baseline_from_state(told)
    found = verdict(run(60), baseline=baseline)
    assert (found.verdict, baseline.available_bytes) == (TrialVerdict.GOOD, 7)
    assert any("cannot be" in warning for warning in found.warnings)


def test_an_impossible_word_of_the_one_before_takes_no_limit_of_the_manifest_away():
    baseline = baseline_from_state({"streams": {"east": 1e9}})
    found = verdict(run(60), baseline=baseline, limits=replace(LIMITS, infer_p95_ms=10.0))
    assert found.verdict is TrialVerdict.BAD

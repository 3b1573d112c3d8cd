"""Waves, limits, parallelism and Ctrl-C of a rollout, seen on pushes that do as they are told."""

import pytest

from edge.delivery.outcome import Outcome, last_event
from edge.deploy.fleet.ask import last_seen, note_seen
from edge.deploy.fleet.journal import Journal
from tests.support.fleet import Running, ScriptedPush, targets, wave
from tests.support.raised import code_of
from tests.support.wait import wait_looks, wait_until


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_than_max_parallel_at_once(most):
    names = [target.name for target in targets(10)]
    push = ScriptedPush(dict.fromkeys(names, "wait"))
    running = Running(targets(10), push, max_parallel=most)

    for number, name in enumerate(names):
        wait_until(lambda: len(push.running) == min(most, 10 - number), what=f"{most} at work")  # noqa: B023
        push.release(name)
    result = running.join()

    assert push.most_at_once == most
    assert push.begun == [outcome.target for outcome in result.outcomes] == names
    assert (result.exit_code, set(running.memory.results().values())) == (0, {"committed"})


def test_the_canary_goes_first_alone_then_each_step_in_full():
    push = ScriptedPush()

    Running(targets(20), push, order=wave(canary=("d-07",), steps=("10%", "50%", "100%"))).join()

    # Of the 19 others, 10 % are 1.9, so 2; 50 % are 9.5, so 10.
    assert push.begun[0] == "d-07"
    waves = [["d-07"], ["d-00", "d-01"], [f"d-{number:02}" for number in (2, 3, 4, 5, 6, 8, 9, 10)]]
    rest = sorted({target.name for target in targets(20)} - {name for names in waves for name in names})
    before: set[str] = set()
    for names in (*waves, rest):
        for name in names:
            assert before <= set(push.begun_when[name])
            assert set(push.begun_when[name]) <= before | set(names)
        before |= set(names)
    assert len(push.begun) == 20


def test_another_one_stands_in_for_a_canary_that_is_not_there():
    push = ScriptedPush({"d-00": "unreachable"})

    result = Running(targets(4), push, order=wave(canary=None, max_failed=0)).join()

    assert push.begun_when["d-01"] == ("d-00",)
    assert push.begun_when["d-02"][:2] == push.begun_when["d-03"][:2] == ("d-00", "d-01")
    assert result.exit_code == 11


def test_nothing_follows_a_named_canary_that_was_not_reached():
    push = ScriptedPush({"d-01": "unreachable"})
    running = Running(targets(4), push, order=wave(canary=("d-01",)))

    result = running.join()

    assert push.begun == ["d-01"]
    assert running.memory.results() == {"d-01": "unreachable", **dict.fromkeys(("d-00", "d-02", "d-03"), "refused")}
    assert "d-01 unreachable" in (result.outcomes[0].problem or "")


@pytest.mark.parametrize(
    ("count", "failing", "how", "begun", "code", "said"),
    [
        (50, {"unreachable": range(50)}, {"canary": None}, 3, "fleet.canary", ""),
        (4, {"unhealthy": [0]}, {"canary": ("d-00",), "max_failed": 2}, 1, "fleet.canary", ""),
        (40, {"broken": range(2)}, {"max_failed": "5%"}, 40, None, ""),  # two of forty are five percent, not more
        (40, {"broken": range(3)}, {"max_failed": "5%"}, 3, "fleet.stopped", "3 of 40 targets failed, at most 5% may"),
        (10, {"unreachable": range(3)}, {"max_failed": 0}, 10, None, ""),
        # One of the five that were reached is more than 10 %, one of ten would not be.
        (10, {"unreachable": range(5), "broken": [5]}, {"max_failed": "10%"}, 6, "fleet.stopped", ""),
    ],
    ids=["network-down", "canary-within-the-limit", "small-share", "one-more", "unreachable-alone", "of-the-reached"],
)
def test_it_stops_where_a_canary_or_too_many_of_those_that_were_reached_have_failed(
    count, failing, how, begun, code, said
):
    orders = {f"d-{number:02}": order for order, numbers in failing.items() for number in numbers}
    push = ScriptedPush(orders)
    running = Running(targets(count), push, order=wave(**how), max_parallel=1)

    result = running.join()

    assert push.begun == [target.name for target in targets(begun)]
    assert sum(outcome.is_done for outcome in result.outcomes) == len(set(push.begun) - set(orders))
    assert [outcome.code for outcome in result.outcomes[begun:]] == [code] * (count - begun)
    assert said in "".join(running.memory.said)
    assert result.exit_code == 11


def test_a_push_that_raises_has_failed_and_the_others_go_on(caplog):
    push = ScriptedPush({"d-01": "raise"})

    result = Running(targets(3), push).join()

    assert [outcome.exit_code for outcome in result.outcomes] == [0, 1, 0]
    assert result.outcomes[1].code == "fleet.internal"
    assert "a bug of ours" in (result.outcomes[1].problem or "")


@pytest.mark.parametrize(
    ("orders", "count", "expected"),
    [
        ({"d-00": "unhealthy"}, 1, 8),
        ({"d-00": "locked"}, 1, 5),
        ({"d-00": "locked"}, 2, 11),
        ({"d-00": "planned"}, 1, 10),
        ({"d-00": "planned"}, 3, 10),
        ({"d-00": "planned", "d-01": "unreachable"}, 3, 11),
        ({}, 0, 0),
    ],
)
def test_exit_codes(orders, count, expected):
    assert Running(targets(count), ScriptedPush(orders), order=None).join().exit_code == expected


def test_f26_ctrl_c_once_begins_no_more_and_lets_the_running_ones_finish():
    push = ScriptedPush({"d-00": "wait", "d-01": "wait"})
    running = Running(targets(6), push, max_parallel=2)
    wait_until(lambda: len(push.running) == 2, what="two at work")

    running.interrupt()
    wait_until(lambda: any("still at work: d-00, d-01" in said for said in running.memory.said), what="it is told")
    push.release("d-00")
    push.release("d-01")
    result = running.join()

    assert push.begun == ["d-00", "d-01"]
    assert running.memory.results() == {
        **dict.fromkeys(("d-00", "d-01"), "committed"),
        **dict.fromkeys(("d-02", "d-03", "d-04", "d-05"), "interrupted"),
    }
    assert result.exit_code == 130


def test_f26_ctrl_c_twice_ends_within_a_second_even_where_a_push_does_not_listen():
    push = ScriptedPush({"d-00": "hang", "d-01": "deaf"})
    running = Running(targets(6), push, max_parallel=2)
    wait_until(lambda: len(push.running) == 2, what="two at work")

    running.interrupt()
    running.interrupt()
    wait_looks(running.has_ended, what="the end", seconds=1.5)  # 0.8 s for the deaf one; the rest is the scheduler's
    result = running.join()

    assert push.ended == ["d-00"]
    assert result.exit_code == 130
    assert set(running.memory.results().values()) == {"interrupted"}
    assert len(running.memory.results()) == 6


def test_ctrl_c_after_the_last_has_begun_is_no_interruption_of_anything():
    push = ScriptedPush({"d-00": "wait"})
    running = Running(targets(1), push)
    wait_until(lambda: push.running, what="one at work")

    running.interrupt()
    wait_until(lambda: running.memory.said, what="it is told")
    push.release("d-00")

    assert running.join().exit_code == 0


def test_ctrl_c_ends_the_time_between_waves():
    push = ScriptedPush()
    running = Running(targets(3), push, order=wave(canary=("d-00",), soak_s=3600))
    wait_until(lambda: any("begins in 3600 s" in said for said in running.memory.said), what="the canary serves")

    running.interrupt()
    result = running.join()

    assert push.begun == ["d-00"]
    assert result.exit_code == 130


def test_a_rollout_that_was_never_begun_cannot_be_resumed(tmp_path):
    with Journal(tmp_path / "j.jsonl") as journal:
        running = Running(targets(1), ScriptedPush(), journal=journal, is_resumed=True)
        assert code_of(running.join) == "request.resume"


def test_steps_that_add_nobody_are_passed_over():
    push = ScriptedPush()

    result = Running(targets(5), push, order=wave(steps=(1, "10%", 9, "100%"))).join()

    assert push.begun_when["d-01"][0] == "d-00"
    assert result.exit_code == 0


def test_a_push_that_tells_its_own_end_is_heard_once():
    scripted = ScriptedPush()

    def talkative(target, on_event, stop):
        outcome = scripted(target, on_event, stop)
        on_event(last_event(outcome))
        return outcome

    running = Running(targets(2), talkative)
    running.join()

    assert running.memory.results() == {"d-00": "committed", "d-01": "committed"}


@pytest.mark.parametrize(
    ("result", "code", "is_seen"),
    [
        ("refused", "preflight.space", True),
        ("rolled-back", "trial.frames", True),
        ("refused", "fleet.stopped", False),
        ("failed", "fleet.internal", False),
        ("late", "transfer.deadline", False),
        ("unreachable", "transfer.ssh.timeout", False),
    ],
)
def test_a_target_that_has_answered_is_noted_as_seen(tmp_path, monkeypatch, result, code, is_seen):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (target,) = targets(1)

    note_seen([target], [Outcome(target=target.name, release=None, result=result, exit_code=3, code=code)])

    assert (last_seen(target) is not None) == is_seen

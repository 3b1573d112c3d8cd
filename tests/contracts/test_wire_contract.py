"""Both ends against what the first revision of the protocol has said: recorded bytes, made by that code itself."""

import threading

import pytest

from edge.delivery.deliver import deliver
from edge.delivery.deliverable import DeliveryOptions
from edge.delivery.link import Link
from edge.device.state import Phase
from edge.transport.channel import ChildChannel, Message, read_frame
from edge.wire.peer import Nothing
from edge.wire.verbs import FACTS, LOGS, PING, STATUS, LogsRequest
from tests.support.device_root import DeviceRoot
from tests.support.scripted_device import allowed_signers, recorded_bundle, recorded_device, transcript
from tests.support.wait import wait_until

ENDINGS = {
    "plan of a first push": ("planned", None),
    "a first push": ("committed", None),
    "an unchanged push": ("unchanged", None),
    "a push that a person confirms": ("committed", None),
    "a push that is rolled back": ("rolled-back", "trial.frames"),
    "a push that failed here before": ("refused", "preflight.bad"),
    "a push whose build fails": ("failed", "smoke.recall"),
    "a detached push": ("detached", None),
    "a push while another one is under way": ("refused", "lock.held"),
}

STORIES = ("plan of a first push", "a first push", "an unchanged push", "a push that a person confirms")
FREE = ("missing", "streams", "bad", "evidence", "per_class", "report")  # their keys are names


@pytest.mark.parametrize("story", ENDINGS)
def test_this_client_pushes_to_a_device_of_the_first_revision(story, tmp_path):
    outcome = deliver(
        recorded_bundle(story, tmp_path),
        lambda: recorded_device(story),
        target="gate-01",
        options=DeliveryOptions(
            who="tester", is_plan="plan" in story, confirm="confirms" in story, detach="detached" in story
        ),
        on_event=lambda event: None,
        stop=threading.Event(),
    )
    assert (outcome.result, outcome.code) == ENDINGS[story], outcome


def test_this_client_reads_what_a_device_of_the_first_revision_says_of_itself():
    link = Link(recorded_device("what people ask"), threading.Event())
    assert link.ask(STATUS, Nothing()).state.phase == "idle"
    assert link.ask(FACTS, Nothing()).name == "gate-01"
    assert link.ask(LOGS, LogsRequest(lines=5)).note
    assert link.ask(PING, Nothing()) == Nothing()


def test_a_client_of_the_first_revision_reads_what_this_agent_says(tmp_path):
    device = DeviceRoot(tmp_path)
    device.layout.allowed_signers.write_text(allowed_signers())
    try:
        for story in STORIES:
            for connection in sorted({said.connection for said in transcript() if said.story == story}):
                _replay(device, [said for said in transcript() if said.connection == connection])
        wait_until(lambda: device.device.state().phase is Phase.IDLE, what="the last verdict")
        assert device.device.releases.current() == recorded_bundle(STORIES[-1], tmp_path).manifest.release
    finally:
        device.stop()


def _replay(device, frames):
    """Say what the old client said, frame by frame, and hold each answer against the one that it got."""
    channel = ChildChannel(device.command)
    try:
        channel.receive()
        number = None
        for said in (one for one in frames if one.who == "client"):
            if said.verb == "lock":
                wait_until(lambda: device.device.state().phase is Phase.IDLE, what="no release is on trial")
            channel.send(_frame(said))
            number = number if said.values is None else said.values.get("id")
            if said.verb not in ("hello", "blob"):  # the bytes of a blob follow, and then its answer
                _hold(_end_of(channel, number), frames, number)
    finally:
        channel.close()


def _frame(said):
    left = memoryview(said.frame)

    def read_exactly(count):
        nonlocal left
        part, left = bytes(left[:count]), left[count:]
        return part

    return read_frame(read_exactly)


def _end_of(channel, number):
    while True:
        frame = channel.receive(timeout_s=30)
        if isinstance(frame, Message) and frame.verb != "progress" and frame.values["id"] == number:
            return frame


def _hold(answer, frames, number):
    told = (one for one in frames if one.who == "agent" and one.values.get("id") == number)
    then = next(one for one in told if one.verb != "progress")
    assert answer.verb == then.verb, (answer, then.values)
    _hold_keys(then.values, {"verb": answer.verb, **answer.values}, then.verb)


def _hold_keys(then, now, where):
    """Every key that there was is there, and what it stands for is of the kind that it was."""
    for key, value in then.items():
        assert key in now, f"{where}.{key}"
        if value not in (None, {}) and now[key] is not None:
            kinds = (int, float) if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value)
            assert isinstance(now[key], kinds), f"{where}.{key}: {now[key]!r}"
        if isinstance(value, dict) and isinstance(now[key], dict) and key not in FREE:
            _hold_keys(value, now[key], f"{where}.{key}")

"""The agent in a thread, its client in the test: whatever is asked has one answer, and it is never a traceback."""

import json
import os
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.delivery.link import Link
from edge.errors import EXIT_CODE_OF
from edge.runtime.agent import serve as serving
from edge.transport.channel import Blob, Message, PipeChannel
from edge.wire.peer import PROTOCOL
from edge.wire.release import BuildRequest, HaveRequest, LockRequest, StageRequest
from edge.wire.verbs import BUILD, HAVE, LOCK, PUT_MANIFEST, STAGE
from tests.support.agent_session import framed, offer_of
from tests.support.device_root import DeviceRoot
from tests.support.process_units import ProcessUnits
from tests.support.raised import code_of

VERBS = ["plan", "lock", "put-manifest", "have", "blob", "stage", "build", "switch", "status", "confirm", "rollback"]
VERBS += ["logs", "facts", "ping", "gc", "hello"]
KEYS = ["sha256", "offset", "length", "release", "to", "who", "why", "manifest", "signature", "lines", "retry_bad"]
KEYS += ["detach", "confirm", "in_trial", "id"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=30) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    root = DeviceRoot(tmp_path_factory.mktemp("device"))
    yield root
    root.stop()


class Connected:
    """A client's channel to an agent in a thread."""

    def __init__(self, device):
        to_agent, from_client = os.pipe()
        to_client, from_agent = os.pipe()
        self.channel = PipeChannel(to_client, from_client)
        self._descriptor = from_client
        agent = PipeChannel(to_agent, from_agent)
        self._thread = threading.Thread(
            target=serving.serve,
            args=(agent, device.device, ProcessUnits(device.root)),
            kwargs={"origin": "test"},
        )
        self._thread.start()

    def say(self, verb, values):
        """Send what `Message` does not let anybody send: numbers that JSON does not have."""
        os.write(self._descriptor, framed(json.dumps({"verb": verb, **values}).encode()))

    def __enter__(self):
        return self.channel

    def __exit__(self, *_):
        self.channel.close()
        self._thread.join(10)
        assert not self._thread.is_alive()


def _greeted(channel):
    assert channel.receive().verb == "hello"
    channel.send(Message("hello", {"protocol": PROTOCOL}))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    requests=st.lists(
        st.tuples(st.sampled_from(VERBS) | st.text(max_size=10), st.dictionaries(st.sampled_from(KEYS), VALUES)),
        min_size=1,
        max_size=5,
    ),
    stray=st.binary(max_size=50),
)
def test_whatever_is_asked_is_answered_once_with_a_known_code(device, requests, stray):
    connected = Connected(device)
    with connected as channel:
        _greeted(channel)
        for verb, values in requests:
            channel.send(Blob(stray))
            connected.say(verb, values)
            answer = channel.receive(timeout_s=20)
            while answer.verb == "progress":
                answer = channel.receive(timeout_s=20)
            assert answer.verb in ("ok", "err")
            if answer.verb == "err":
                assert answer.values["code"].partition(".")[0] in EXIT_CODE_OF
                assert answer.values["code"] != "device.internal", answer.values["problem"]


def test_a_client_of_another_protocol_is_told_and_left(device):
    with Connected(device) as channel:
        channel.receive()
        channel.send(Message("hello", {"protocol": PROTOCOL + 1}))
        answer = channel.receive()
        assert (answer.verb, answer.values["code"]) == ("err", "transfer.version")
        assert code_of(channel.receive) == "transfer.closed"


def test_a_ping_during_a_long_request_is_not_taken_for_its_end(device):
    device.script(build_s=1.0)
    bundle = device.bundle()
    with Connected(device) as channel:
        link = Link(channel, threading.Event())
        link.ask(LOCK, LockRequest(who="a", why="b"))
        link.ask(PUT_MANIFEST, offer_of(bundle))
        for file in bundle.manifest.files:
            with bundle.path_of(file).open("rb") as content:
                link.send_blob(file.sha256, content, offset=0, length=file.length_bytes)
        release = bundle.manifest.release
        link.ask(STAGE, StageRequest(release=release))
        seen = []

        def ping(progress):
            seen.append(progress.phase)
            channel.send(Message("ping", {"id": -1}))

        built = link.ask(BUILD, BuildRequest(release=release), ping)
        assert seen
        assert built.key
        assert link.ask(HAVE, HaveRequest(sha256=())).missing == {}

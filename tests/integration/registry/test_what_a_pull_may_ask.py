"""The agent behind the socket of who fetches releases: it answers a pull, and nothing that a person decides."""

import contextlib
import sys
import threading
from pathlib import Path

import pytest

from edge.delivery.link import Link
from edge.errors import DeployError
from edge.transport.channel import ChildChannel
from edge.wire.peer import Nothing
from edge.wire.release import ConfirmRequest, LockRequest, LookRequest, RollbackRequest
from edge.wire.verbs import CONFIRM, FACTS, LOCK, LOGS, LOOK, PING, ROLLBACK, STATUS, LogsRequest
from tests.support.raised import error_of

pytestmark = pytest.mark.slow_but(reason="further pulls over real registries: the first row of each test is quick")

UNIT = Path(__file__).parents[3] / "systemd/edge-agent@.service"


@pytest.fixture
def for_pull(root):
    """Let the agents of the device be those of its socket."""
    root.connect = lambda: ChildChannel([*root.command, "for-pull"])
    return root


@pytest.fixture
def link(for_pull):
    with contextlib.closing(Link(for_pull.connect(), threading.Event())) as open_link:
        yield open_link


FORBIDDEN = {
    "rollback": (ROLLBACK, RollbackRequest()),
    "rollback to": (ROLLBACK, RollbackRequest(to="0" * 12)),
    "confirm": (CONFIRM, ConfirmRequest()),
    "logs": (LOGS, LogsRequest(lines=10)),
    "look": (LOOK, LookRequest(stream="")),
    "facts": (FACTS, Nothing()),
    "lock in a trial": (LOCK, LockRequest(who="x", why="y", in_trial=True)),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_a_person_decides_is_refused_by_name_and_noted(link, root, name):
    verb, request = FORBIDDEN[name]

    error = error_of(link.ask, verb, request)

    assert (error.code, error.exit_code) == ("request.forbidden", 2)
    assert error.problem.startswith(f"{verb.name}")
    link.ask(PING, Nothing())
    assert any("request.forbidden" in path.read_text() for path in root.layout.var.glob("audit*.jsonl"))


def test_a_holder_of_the_lock_cannot_go_back_either(for_pull, link, odd, led):
    for sequence, name in enumerate(("first", "second"), 1):
        odd.take(for_pull.bundle(name, sequence=sequence))
        assert led.pull().outcome.result == "committed"
    before = led.current
    link.ask(LOCK, LockRequest(who="edge-pull", why="no good"))

    with pytest.raises(DeployError, match="may not ask"):
        link.ask(ROLLBACK, RollbackRequest())

    assert led.current == before
    assert link.ask(STATUS, Nothing()).current == before


@pytest.mark.promised(reason="a pull asks for its own release alone")
def test_a_pull_of_all_kinds_asks_for_nothing_more(for_pull, odd, led):
    odd.take(for_pull.bundle("first"))
    assert led.pull().outcome.result == "committed"
    for_pull.script(trial="refuse")
    odd.take(for_pull.bundle("second", sequence=2))
    assert led.pull().outcome.result == "rolled-back"
    assert led.pull().outcome.result == "unchanged"
    for_pull.script(trial="commit")
    assert led.pull(is_plan=True, retry_bad=True).outcome.result == "planned"
    assert led.pull(retry_bad=True).outcome.result == "committed"


def test_the_unit_of_the_socket_says_so():
    assert "ExecStart=/opt/edge/bin/edge-runtime agent --for-pull\n" in UNIT.read_text()


def test_the_command_line_of_the_unit_is_the_agent_s(root):
    command = [sys.executable, "-I", "-m", "edge.cli.edge_runtime", "agent", "--for-pull", "--root", str(root.root)]

    with contextlib.closing(Link(ChildChannel(command), threading.Event())) as link:
        with pytest.raises(DeployError, match="may not ask"):
            link.ask(LOGS, LogsRequest(lines=1))
        assert link.ask(STATUS, Nothing()).current is None


def test_who_comes_over_ssh_is_told_all(root):
    with contextlib.closing(Link(root.connect(), threading.Event())) as link:
        assert link.ask(FACTS, Nothing()) is not None
        link.ask(LOCK, LockRequest(who="ops", why="to go back", in_trial=True))

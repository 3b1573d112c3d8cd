"""Who answers a push: what provision installed, or what the release that serves has brought, over a real sshd."""

import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import pytest

from edge.bundle.manifest import Role
from edge.delivery.options import DeliveryOptions
from edge.deploy.push.rollback import roll_back_target
from edge.device.lock import PushLock
from edge.device.state import Phase
from edge.errors import DeployError
from edge.transport.frames import Message
from edge.transport.ssh import AGENT, ASK_INSTALLED, SshChannel
from tests.support.broken_software import AGENTS, lab_agent
from tests.support.raw_client import RawClient
from tests.support.real_units import install_software
from tests.support.sshd import Sshd
from tests.support.wait import wait_until
from tests.support.wheels import own_with, software_files

pytestmark = pytest.mark.integration
OLD, NEW = "0.1.0", "0.2.0"
TURN_AGENT = Path(__file__).parents[2] / "support/turn_agent.py"


class Field:
    """A device behind a real sshd, whose releases bring agents; `asked` are the versions that have answered."""

    def __init__(self, device, sshd):
        self.device, self.sshd, self.sequence = device, sshd, 0

    def connect(self, *, installed_only=False):
        return SshChannel(self.sshd.address(), remote=(*AGENT, ASK_INSTALLED) if installed_only else AGENT)

    def bundle(self, how=None, *, software=True):
        """Return a release that brings an agent, which may be broken in a way that no trial sees."""
        self.sequence += 1
        files = software_files(own_with(lab_agent(how))) if software else {}
        parts = {"model.onnx": (Role.MODEL, b"m%d" % self.sequence), "pipeline.yaml": (Role.PIPELINE, b"p"), **files}
        return self.device.bundle_of(parts, "gates", sequence=self.sequence)

    def push(self, bundle, **options):
        return self.device.push(bundle, lambda: self.connect(), **options)

    def bring(self, how=None):
        """Have a release serve that brings an agent; what provision installed has had its turn."""
        bundle = self.bundle(how)
        assert (outcome := self.device.push(bundle)).result == "committed", outcome
        install_software(self.device.root)
        assert self.version() == OLD
        return bundle

    def version(self, **how):
        """Return the version of the agent that answers."""
        with RawClient(self.connect(**how)) as client:
            said = client.hello["software"]
            client.ask("facts", {})
        self.settled()
        return said

    def status(self, **how):
        with RawClient(self.connect(**how)) as client:
            answer = client.ask("status", {})
        self.settled()
        return answer

    def settled(self):
        """Wait until nobody speaks for a client that is gone."""
        root = str(self.device.root)
        wait_until(lambda: not speaking(root), what="no agent is left", timeout_s=30)


def speaking(root):
    """Return the words of each process that speaks for a device, by its id."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text().split("\0")
        except OSError:
            continue
        if root in words and (any("turn_agent" in word for word in words) or "agent" in words):
            found[int(path.parent.name)] = words
    return found


@pytest.fixture
def field(tmp_path, device):
    command = [sys.executable, str(TURN_AGENT), str(device.root)]
    with Sshd(tmp_path / "turns", command=command) as server:
        yield Field(device, server)


def test_a_later_agent_that_a_release_has_brought_answers_the_next_push(field):
    field.bring()

    status = field.status()

    assert status["agent"]["version"] == NEW
    assert (status["agent"]["installed"], status["agent"]["owed"]) == (OLD, None)
    outcome = field.push(field.bundle(software=False))
    assert outcome.result == "committed", outcome
    (words,) = {event.hint for event in field.device.events if event.hint and "will be run by" in event.hint}
    assert f"it will be run by what provision has installed ({OLD}); what serves is run by software" in words
    assert field.status(installed_only=True)["agent"] == {
        "version": OLD,
        "software": None,
        "installed": OLD,
        "owed": None,
    }


@pytest.mark.parametrize("how", AGENTS)
def test_an_agent_that_is_broken_in_a_way_that_no_trial_sees_costs_one_push_at_most(field, how):
    field.bring(how)
    bundle = field.bundle(software=False)

    first = field.push(bundle)
    field.settled()
    second = field.push(bundle)

    assert second.exit_code == 0, (first, second)
    assert field.device.device.releases.current() == bundle.manifest.release


@pytest.mark.parametrize("how", ["never-greets", "refuses-all", "calls-all-unchanged"])
def test_questions_in_between_are_no_turn_of_a_push(field, how):
    field.bring(how)
    bundle = field.bundle(software=False)
    field.push(bundle)
    field.settled()

    status = field.status()
    assert (status["agent"]["version"], status["agent"]["owed"]) == (OLD, "plan")
    assert field.status()["agent"]["version"] == OLD

    assert (outcome := field.push(bundle)).result == "committed", outcome


def test_a_push_whose_link_was_cut_is_owed_though_nobody_reads_what_is_said_of_it(field):
    field.bring("hangs")
    client = RawClient(field.connect())
    client.channel.send(Message("plan", {"id": 1}))
    wait_until(lambda: not field.device.layout.agent_turn.exists(), what="its turn is taken")
    client.channel.close()
    field.settled()

    assert field.status()["agent"]["owed"] == "plan"


def test_a_question_that_is_owed_keeps_no_push_from_what_was_brought(field):
    field.bring("cannot-say-how-it-stands")
    with pytest.raises(DeployError, match="status"):
        field.status()
    field.settled()

    versions = []
    for _ in range(3):
        with RawClient(field.connect()) as client:
            versions.append(client.hello["software"])
            with pytest.raises(DeployError, match="expected a text"):
                client.ask("plan", {})
        field.settled()

    assert versions == [OLD, OLD, NEW]


def test_an_agent_that_fails_gets_its_turn_again_once_what_is_installed_was_asked_the_same(field):
    field.bring("refuses-all")
    bundle = field.bundle()
    versions = []
    for _ in range(2):
        assert field.push(bundle, is_plan=True).code == "preflight.device"
        field.settled()
        assert field.push(bundle, is_plan=True).result == "planned"
        versions.append(field.version())

    assert versions == [NEW, NEW]


def test_what_is_installed_answers_who_asks_for_it_and_nothing_else_that_is_said_over_ssh_counts(field):
    field.bring()

    assert field.version(installed_only=True) == OLD
    assert field.version() == NEW
    assert field.version(installed_only=True) == OLD
    with RawClient(
        SshChannel(field.sshd.address(), remote=("edge-runtime agent --root /tmp --installed", "x"))
    ) as client:
        assert client.hello["software"] == NEW
        client.ask("facts", {})


def test_what_is_installed_answers_while_a_release_is_on_trial(field):
    field.bring()
    field.device.script(trial="hang")
    bundle = field.bundle()
    assert field.push(bundle, detach=True).result == "detached"
    wait_until(lambda: field.device.device.state().phase is Phase.TRIAL, what="it is on trial")
    field.settled()

    assert [field.version() for _ in range(3)] == [OLD] * 3


def test_what_is_installed_answers_while_somebody_holds_the_lock(field):
    field.bring()

    with PushLock(field.device.layout).acquire("somebody", "a push"):
        assert [field.version() for _ in range(3)] == [OLD] * 3
    assert field.version() == NEW


def test_going_back_takes_the_agent_back(field):
    plain = field.bundle(software=False)
    assert field.device.push(plain).result == "committed"
    field.bring()
    assert field.version() == NEW

    done = roll_back_target(
        lambda: field.connect(installed_only=True),
        target="gate-01",
        to=None,
        options=DeliveryOptions(who="tester"),
        on_event=lambda event: None,
        stop=threading.Event(),
    )

    assert done.result == "rolled-back", done
    assert field.device.device.releases.current() == plain.manifest.release
    assert [field.version() for _ in range(3)] == [OLD] * 3


def test_software_that_is_damaged_on_the_disk_answers_nobody_and_that_is_said(field):
    bundle = field.bring()
    (folder,) = (field.device.layout.software / name for name in field.device.device.software.names())
    (folder / "lib/edge/version.py").write_text("__version__ = 'evil'\n")

    assert [field.version() for _ in range(3)] == [OLD] * 3
    kept = {one["release"]: one["software"] for one in field.status()["releases"]}
    assert "is damaged: lib/edge/version.py" in kept[bundle.manifest.release]


@pytest.mark.parametrize("who", ["brought", "between"])
def test_an_agent_that_is_killed_leaves_the_next_turn_to_what_is_installed(field, who):
    field.bring()
    with RawClient(field.connect()) as client:
        assert client.hello["software"] == NEW
        client.ask("lock", {"who": "tester", "why": "test"})
        kill(str(field.device.root), who)
        field.settled()

    with RawClient(field.connect()) as client:
        assert client.hello["software"] == OLD
        client.ask("lock", {"who": "tester", "why": "test"})  # nobody holds it any more


def kill(root, who):
    for pid, words in speaking(root).items():
        if any("turn_agent" in word for word in words) == (who == "between"):
            os.kill(pid, signal.SIGKILL)


def test_an_agent_of_which_nothing_is_left_in_memory_is_not_the_first_after_a_boot(field):
    field.bring()
    assert field.version() == NEW
    shutil.rmtree(field.device.layout.run)  # as a power cut does at any moment

    assert [field.version(), field.version()] == [OLD, NEW]

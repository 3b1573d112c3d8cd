"""Who stands between a client and an agent that was brought: bytes, ends, and deadlines."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from edge.runtime.software import between as module
from edge.runtime.software.between import Patience, between
from edge.transport.frames import Message
from edge.transport.pipe import PipeChannel
from tests.support.wait import wait_until

SOON = Patience(silence_s=60.0, rest_s=0.3, alone_s={"switch": 30.0})
HEAD = """
import json, struct, sys, time
def say(**values):
    body = json.dumps(values).encode()
    sys.stdout.buffer.write(struct.pack(">IB", len(body) + 1, 0) + body)
    sys.stdout.flush()
def hear():
    head = sys.stdin.buffer.read(5)
    return None if len(head) < 5 else json.loads(sys.stdin.buffer.read(struct.unpack(">IB", head)[0] - 1))
say(verb="hello")
"""
ANSWERS = HEAD + 'while (asked := hear()): say(verb="ok", id=asked.get("id"))\n'


class Talk:
    """A conversation with an agent that is a text; `status` and `account` once it has ended."""

    def __init__(self, agent, patience=SOON):
        read, self._answers = os.pipe()
        self._asks, write = os.pipe()
        self.channel = PipeChannel(read, write)
        self._thread = threading.Thread(target=self._run, args=(agent, patience))
        self._thread.start()

    def _run(self, agent, patience):
        command = [sys.executable, "-c", agent]
        self.status, self.account = between(command, os.environ, client=(self._asks, self._answers), patience=patience)
        for descriptor in (self._asks, self._answers):
            os.close(descriptor)

    def hello(self):
        assert self.channel.receive().verb == "hello"
        self.channel.send(Message("hello", {}))

    def ask(self, verb, **values):
        self.channel.send(Message(verb, {"id": 7, **values}))

    def owed(self):
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.account.owed(self.status)


@pytest.fixture(autouse=True)
def _signals(monkeypatch):
    monkeypatch.setattr(module.signal, "signal", lambda *_: None)  # a thread may not


def test_what_both_say_is_passed_on_and_a_client_that_leaves_ends_it_well():
    talk = Talk(HEAD + 'hear(); asked = hear(); say(verb="ok", id=asked["id"], told=asked["x"]); assert not hear()\n')
    talk.hello()
    talk.ask("status", x="y" * 200_000)

    assert talk.channel.receive().values == {"id": 7, "told": "y" * 200_000}
    talk.channel.close()
    assert (talk.owed(), talk.status) == (None, 0)


@pytest.mark.parametrize(("end", "status"), [("sys.exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)])
def test_an_agent_that_dies_is_told_to_its_client_at_once(end, status):
    talk = Talk(HEAD + f"hear(); hear(); {end}\n")
    talk.hello()
    talk.ask("status")

    with pytest.raises(Exception, match="has ended the connection"):
        talk.channel.receive()
    assert (talk.owed(), talk.status) == ("status", status)


@pytest.mark.parametrize("agent", ["import time; time.sleep(600)", HEAD + "time.sleep(600)"], ids=["mute", "greets"])
def test_an_agent_that_hangs_is_ended_once_its_client_has_gone(agent):
    talk = Talk(agent)
    talk.channel.close()

    assert talk.owed() == "plan"
    assert talk.status == -9


def test_an_agent_that_does_not_listen_any_more_is_ended_too():
    talk = Talk(HEAD + "time.sleep(600)", Patience(silence_s=0.5, rest_s=0.2, alone_s={}))
    talk.channel.receive()
    for _ in range(4):
        talk.channel.send(Message("status", {"id": 7, "x": "y" * 20_000}), timeout_s=5)

    assert (talk.owed(), talk.status) == ("status", -9)


def test_a_client_that_says_nothing_any_more_counts_as_gone():
    talk = Talk(HEAD + "time.sleep(600)", Patience(silence_s=0.3, rest_s=0.2, alone_s={}))
    talk.hello()

    assert (talk.owed(), talk.status) == ("plan", -9)


def test_an_agent_that_switches_goes_on_without_its_client():
    talk = Talk(HEAD + "hear(); hear(); hear(); time.sleep(1); sys.exit(0)\n")
    talk.hello()
    talk.ask("switch")
    talk.channel.close()

    assert (talk.owed(), talk.status) == ("plan", 0)


def test_an_agent_that_hangs_does_not_outlive_who_is_killed_between(tmp_path):
    agent = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    text = "import os, sys; from edge.runtime.software.between import *; "
    text += "between([sys.executable, '-c', sys.argv[1]], os.environ, client=(0, 1), "
    text += "patience=Patience(silence_s=600, rest_s=600, alone_s={}))"
    process = subprocess.Popen([sys.executable, "-c", text, agent], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), what="the agent is there")
    pid = int((tmp_path / "pid").read_text())
    process.kill()
    process.communicate()

    wait_until(lambda: not is_there(pid), what="it is gone")


def is_there(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_an_agent_that_ends_its_side_and_stays_is_ended():
    talk = Talk("import os, time; os.close(1); os.close(0); time.sleep(600)")

    assert (talk.owed(), talk.status) == ("plan", -9)


def test_who_shuts_only_its_own_side_still_hears_the_answer():
    talk = Talk(ANSWERS, Patience(silence_s=60.0, rest_s=20.0, alone_s={}))
    talk.hello()
    assert talk.channel.receive().verb == "ok"  # to the hello, by this agent
    talk.ask("status")
    os.close(talk.channel._write)

    assert talk.channel.receive().verb == "ok"
    assert talk.owed() is None


def test_an_agent_that_ends_before_its_client_has_left_has_not_ended_well():
    talk = Talk(HEAD + 'hear(); asked = hear(); say(verb="ok", id=asked["id"])\n')
    talk.hello()
    talk.ask("status")
    assert talk.channel.receive().verb == "ok"

    assert talk.owed() is not None
    assert talk.status == 0
    talk.channel.close()


def test_a_program_that_cannot_be_started_is_an_error():
    read, write = os.pipe()
    with pytest.raises(FileNotFoundError):
        between(["/nonexistent"], {}, client=(read, write), patience=SOON)
    os.close(read)
    os.close(write)


def test_a_megabyte_each_way_takes_no_time():
    talk = Talk(HEAD + 'hear()\nfor _ in range(20): asked = hear(); say(verb="ok", id=7, x=asked["x"])\nhear()\n')
    talk.hello()
    began = time.monotonic()
    for _ in range(20):
        talk.ask("status", x="y" * 200_000)
        assert len(talk.channel.receive().values["x"]) == 200_000
    print(f"20 times 200 kB each way: {time.monotonic() - began:.2f} s")
    talk.channel.close()

    assert talk.owed() is None

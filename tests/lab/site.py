"""A virtual device with its broker, a subscriber that watches throughout, and commands as a person types them."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from edge.bundle.folder import Bundle
from tests.lab.device import VirtualDevice
from tests.lab.image import is_machine, slowness
from tests.lab.machine import VirtualMachine
from tests.lab.provisioning import ROOT
from tests.support.mosquitto import Collector, Mosquitto
from tests.support.promise import Findings, findings
from tests.support.wait import wait_until


@dataclass(frozen=True)
class Arrived:
    """One detection message; `at_s` is the broker's host's monotonic clock."""

    at_s: float
    release: str | None
    epoch: int
    stream: str
    seq: int


class Watcher:
    """Watches everything that is published from the moment it is made; shares no code with the product."""

    def __init__(self, host: str, port: int) -> None:
        self._collector = Collector(port, host=host)

    def arrived(self) -> list[Arrived]:
        """Return the detections in order of arrival, with duplicates."""
        found = []
        for message in list(self._collector.messages):
            if message.topic.endswith("/detections"):
                values = json.loads(message.payload)
                release = (values.get("model") or {}).get("release")
                found.append(Arrived(message.timestamp, release, values["epoch"], values["stream"], values["seq"]))
        return found

    def count(self, release: str) -> int:
        return sum(one.release == release for one in self.arrived())

    def undeclared(self) -> dict[tuple[int, str], set[int]]:
        """Return the numbers that neither came nor were declared lost, by epoch and stream."""
        numbers: dict[tuple[int, str], set[int]] = defaultdict(set)
        for one in self.arrived():
            numbers[one.epoch, one.stream].add(one.seq)
        declared: dict[tuple[int, str], set[int]] = defaultdict(set)
        for gap in self._collector.payloads("/gaps"):
            key = gap["epoch"], gap["stream"]
            last = (
                max(numbers.get(key, ()), default=0) if gap["to"] is None else gap["to"]
            )  # a power cut leaves the end open
            declared[key] |= set(range(gap["from"], last + 1))
        missing = {key: set(range(min(seen), max(seen) + 1)) - seen - declared[key] for key, seen in numbers.items()}
        return {key: lost for key, lost in missing.items() if lost}

    def longest_silence_s(self, *, since: int = 0) -> float:
        """Return the longest time between two detections, from the `since`th on."""
        return max((b.at_s - a.at_s for a, b in pairwise(self.arrived()[since:])), default=0.0)

    def state(self) -> str | None:
        """Return the device's latest state: online, degraded, offline, ..."""
        told = self.states()
        return told[-1][0] if told else None

    def states(self) -> list[tuple[str, str | None]]:
        states = self._collector.payloads("/state")
        return [(one["state"], one["reason"]) for one in states if one.get("schema", "").startswith("edge.state/")]

    def findings(self, epochs: Container[int]) -> Findings:
        """Return what all that came of these epochs says of the promise; events have accounts of their own."""
        messages = [(message.topic, message.payload) for message in list(self._collector.messages) if message.payload]
        kinds = ("/detections", "/replay", "/events", "/gaps")
        ours = [one for one in messages if one[0].endswith(kinds) and json.loads(one[1])["epoch"] in epochs]
        return findings(ours, may_be_open=True, has_events=True)

    def last_switch(self) -> dict[str, object]:
        """Return what the device has last published of a switch; empty: nothing."""
        told = self._collector.payloads("/deploy")
        return told[-1] if told else {}

    def last_look(self) -> dict[str, Any]:
        """Return what the device has last published of its registry; empty: nothing."""
        return (self._collector.payloads("/pull") or [{}])[-1]

    def close(self) -> None:
        self._collector.close()


@dataclass(frozen=True)
class Said:
    """What a command said: its exit code, its JSON documents, what a person would have read on stderr."""

    code: int
    documents: list[dict[str, Any]]
    told: str
    seconds: float = 0.0

    @property
    def result(self) -> dict[str, Any]:
        """Return the last document: the result of a push."""
        assert self.documents, f"exit code {self.code}: {self.told}"
        return self.documents[-1]

    def took_s(self, phase: str) -> float:
        """Return how long a phase of a push took, from its beginning to its end."""
        times = {
            one["event"]: datetime.fromisoformat(one["ts"][:-1]) for one in self.documents if one["phase"] == phase
        }
        return (times["end"] - times["begin"]).total_seconds()


@dataclass
class Site:
    """Everything that stands at one place."""

    device: VirtualDevice
    broker: Mosquitto
    watcher: Watcher
    home: Path
    _children: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, command: str, *words: str | Path) -> subprocess.Popen[str]:
        """Start `edge-deploy COMMAND ... gate-01 --json` in a process group of its own."""
        line = [sys.executable, "-m", "edge.cli.edge_deploy", command, *map(str, words), self.device.name]
        line += ["--targets", str(self.home / "targets.toml"), "--json"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(self.home / "state")}
        child = subprocess.Popen(
            line, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._children.append(child)
        return child

    def start_until(self, phase: str, event: str, command: str, *words: str | Path) -> subprocess.Popen[str]:
        """Start a command and return once it has told this event; it goes on."""
        child = self.start(command, *words)
        assert child.stdout is not None
        told = []
        for line in child.stdout:
            told.append(line)
            document = json.loads(line)
            if (document["phase"], document["event"]) == (phase, event):
                return child
        raise AssertionError(f"{command} ended before {phase} {event}: {told[-3:]}")

    def end(self, child: subprocess.Popen[str], *, timeout_s: float = 240.0 * slowness()) -> Said:
        """Wait for what `start` has started."""
        told, warned = child.communicate(timeout=timeout_s)
        return Said(child.returncode, _documents(told), warned)

    def kill(self, child: subprocess.Popen[str]) -> None:
        """End a command as if its machine had lost power."""
        child.kill()
        child.communicate(timeout=60)

    def do(self, command: str, *words: str | Path, timeout_s: float = 240.0 * slowness()) -> Said:
        """Run `edge-deploy COMMAND ... gate-01 --json` to its end."""
        began = time.monotonic()
        said = self.end(self.start(command, *words), timeout_s=timeout_s)
        return Said(said.code, said.documents, said.told, time.monotonic() - began)

    def push(self, bundle: Bundle, *options: str) -> Said:
        return self.do("push", bundle.path, *options)

    def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.do("status").result[self.device.name]
        return answer

    def current(self) -> str | None:
        link = self.device.link_of("current")
        return None if link is None else link.rpartition("/")[2]

    def state(self) -> dict[str, Any]:
        """Return the state of the switch, read on the device itself."""
        text = self.device.text_of("state.json")
        state: dict[str, Any] = {"phase": "idle"} if text is None else json.loads(text)
        return state

    def file(self, name: str) -> Path:
        """Return where a file of the device's data lies, as the host sees it."""
        return self.device.data / name

    def pid(self, unit: str) -> int:
        """Return the main process of a unit by its number in the device; 0: none runs."""
        return int(self.device.run(f"systemctl show -p MainPID --value {unit}", check=False).stdout or 0)

    def is_in(self, unit: str, state: str) -> bool:
        """Return whether systemd says that a unit is in this state."""
        return self.device.run(f"systemctl show -p ActiveState --value {unit}", check=False).stdout.strip() == state

    def invocation(self) -> str:
        """Return which run of the service this is: another one after each start."""
        return self.device.run("systemctl show -p InvocationID --value edge-runtime").stdout.strip()

    @contextlib.contextmanager
    def drop_in(self, unit: str, text: str) -> Iterator[None]:
        """Have `text` count for a unit within the block, so that a story takes seconds; what runs is not touched."""
        folder = f"/run/systemd/system/{unit}.service.d"
        self.device.run(f"mkdir -p {folder}; cat > {folder}/99-lab.conf; systemctl daemon-reload", content=text)
        try:
            yield
        finally:
            self.device.run(f"rm -f {folder}/99-lab.conf; systemctl daemon-reload")

    def seconds_until_told(self, child: subprocess.Popen[str], code: str) -> float:
        """Read what a command tells until an event has this code; return how long that took."""
        began = time.monotonic()
        assert child.stdout is not None
        for line in child.stdout:
            if json.loads(line)["code"] == code:
                return time.monotonic() - began
        raise AssertionError(f"the command ended before it told {code}")

    def seconds_until_free(self, *, timeout_s: float = 60.0) -> float:
        """Wait until nobody holds the push lock; return how long that took."""
        began = time.monotonic()
        taken = "flock --nonblock --conflict-exit-code 9 /run/edge-deploy/lock true"
        wait_until(
            lambda: self.device.run(f"test -e /run/edge-deploy/lock || exit 0; {taken}", check=False).returncode == 0,
            what="the push lock is free",
            timeout_s=timeout_s,
        )
        return time.monotonic() - began

    def journal(self) -> str:
        """Return what our units have said, in this boot and those before."""
        return self.device.run("journalctl --no-pager -q -o cat -u 'edge-*'", check=False).stdout

    def wait_serving(self, release: str, *, timeout_s: float = 60.0 * slowness()) -> None:
        count = self.watcher.count(release)
        wait_until(
            lambda: self.watcher.count(release) > count + 1,
            what=f"detections of {release} arrive; current is {self.current()}",
            timeout_s=timeout_s,
        )

    def kill_children(self) -> None:
        for child in self._children:
            if child.poll() is None:
                self.kill(child)


@contextlib.contextmanager
def open_site(
    home: Path,
    *,
    port: int,
    layers: Sequence[Path],
    push_key: Path | None = None,
    disk_bytes: int | None = None,
    is_broker_persistent: bool = False,
) -> Iterator[Site]:
    """Open a site whose device starts from `layers`; all of it is gone at the end.

    A broker that is persistent knows its subscribers again after it was stopped: they miss nothing of what comes first.
    """
    home.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as opened:
        kind = VirtualMachine if is_machine() else VirtualDevice
        device = opened.enter_context(kind(layers=layers, disk_bytes=disk_bytes))
        kept = {"host": device.host_address, "port": port, "is_persistent": is_broker_persistent}
        broker = opened.enter_context(Mosquitto(home / "broker", **kept))
        watcher = Watcher(device.host_address, port)
        opened.callback(watcher.close)
        (home / "targets.toml").write_text(
            f'[[target]]\nname = "{device.name}"\nhost = "{device.name}"\n'
            f'ssh_config = "{device.ssh_config}"\nidentity = "{push_key or device.push_key}"\n'
        )
        site = Site(device, broker, watcher, home)
        opened.callback(site.kill_children)
        yield site


def _documents(text: str) -> list[dict[str, Any]]:
    try:
        whole = json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]
    return [whole]

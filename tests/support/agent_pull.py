"""A pull by the real code and the real agent, over files in memory whose power can be cut, its own record among them.

The registry lies in memory and never lies: what one that does can do is tried elsewhere. The unit and its timer are
functions: after a cut the timer goes off again, with what the disk still holds of the record.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from edge.delivery.options import DeliveryOptions
from edge.delivery.outcome import Outcome
from edge.device.device import Device
from edge.device.durable import Durable
from edge.device.state import Phase
from edge.errors import DeployError
from edge.registry.artifact import encode_artifact
from edge.runtime.pull.pull import pull
from edge.runtime.pull.record import PullRecord, decode_pull_record, write_record
from tests.support.agent_push import AgentPush, Report, StandingDate, in_a_minute
from tests.support.crash import bad, current_of, is_temporary, sealed
from tests.support.cut_files import CutFiles
from tests.support.memory_registry import MemoryRegistry
from tests.support.pushes import device_over

FOLDER = "/var/lib/edge-pull"
RECORD = f"{FOLDER}/pull.json"
_AS_OFTEN = 4  # pulls after a cut: one that finds a trial without a judge, and those that see its end


class AgentPull:
    """The device of `push`, which pulls its newer release instead.

    Args:
        push: the device and its releases.
        is_healthy: what the trial of the newer one finds.
    """

    def __init__(self, push: AgentPush, *, is_healthy: bool) -> None:
        self._push, self._is_healthy = push, is_healthy
        self.new = push.new
        self._registry = MemoryRegistry(lambda: 0.0)
        self._registry.put_bundle(self.new.manifest, self.new.signature, self.new.files, encode_artifact)

    def pull(self, device: Device, report: Report) -> None:
        """Pull until the verdict; raise what was not expected."""
        outcome = self.try_pull(device, report)
        assert outcome.result == ("committed" if self._is_healthy else "rolled-back"), outcome

    def try_pull(self, device: Device, report: Report, *, build_id: str = "1" * 16) -> Outcome:
        """Pull with what the disk holds of the last one, and return how it ended; who is killed writes nothing more."""
        durable, killed = Durable(device.durable.files), threading.Event()
        connected = self._push.connected(device, report, is_healthy=self._is_healthy, killed=killed, build_id=build_id)
        with connected as connect, patch("edge.runtime.pull.pull.datetime", StandingDate):
            pulled = pull(
                self._registry.client(),  # type: ignore[arg-type] - what `RegistryClient` does
                connect,
                last=record_on(dict(device.durable.files.tree())),
                options=DeliveryOptions(who="pull"),
                on_event=lambda event: None,
                stop=killed,
                remember=lambda told: write_record(Path(RECORD), told, durable),
            )
            if not killed.is_set():
                write_record(Path(RECORD), pulled.record, durable)
        return pulled.outcome

    def pull_or_end(self, device: Device, report: Report) -> None:
        """Pull as often as the timer does in an hour, a minute after an agent or a pull was killed."""
        with patch("edge.runtime.agent.orphan.this_moment", in_a_minute):
            for number in range(2, 2 + _AS_OFTEN):
                outcome = self.try_pull(device, report, build_id=str(number) * 16)
                if outcome.code != "lock.trial":
                    break
        assert outcome.result in ("committed", "unchanged", "rolled-back"), outcome

    # What `tests.support.crash` asks of a scenario that pulls.
    def wrong_on(self, disk: dict) -> Iterator[str]:
        """Yield what the record on a disk says that is not so."""
        content = disk.get(RECORD)
        record = record_on(disk)
        if content is not None and record is None:
            yield "I7: the record of the pull is damaged"
        if record is None or record.release != self.new.name:
            return
        is_marked = self.new.name in bad(disk)
        if record.result == "committed" and (current_of(disk) != self.new.name or is_marked):
            yield f"I7: the record says committed, current is {current_of(disk)}"
        if record.result == "rolled-back" and not is_marked:
            yield "I7: the record says rolled back, and the device does not know of it"

    def pulled_again(self, files: CutFiles) -> Iterator[str]:
        """Yield what does not hold after the timer has gone off again on a device that has recovered."""
        before = dict(files.tree())
        try:
            self.pull_or_end(device_over(files), lambda: None)
        except (AssertionError, DeployError, OSError) as error:
            yield f"I7: the repeated pull failed: {error!r}"
            return
        disk = dict(files.tree())
        was_left = self.new.name in bad(before) and current_of(before) not in (None, self.new.name)
        expected = self.new.name if self._is_healthy else None
        if was_left and current_of(disk) != current_of(before):
            yield f"I7: {self.new.name} was left, and the repeated pull has put {current_of(disk)} in its place"
        elif expected is not None and not was_left and current_of(disk) != expected:
            yield f"I7: after the repeated pull {current_of(disk)} is current"
        elif expected is None and current_of(disk) == self.new.name:
            yield f"I7: after the repeated pull {self.new.name} is current, which its trial has refused"
        if sealed(disk, "state.json").get("phase") != Phase.IDLE.value:
            yield "I7: after the repeated pull the state is not idle"
        record = record_on(disk)
        if record is None or record.result == "on-trial":
            yield f"I7: after the repeated pull its record says {record and record.result}"
        yield from self.wrong_on(disk)
        if rest := [path for path in disk if path.startswith(FOLDER) and is_temporary(path)]:
            yield f"I7: the repeated pull left {rest}"


def record_on(disk: dict) -> PullRecord | None:
    """Return the record on a disk; None where there is none that can be read."""
    content = disk.get(RECORD)
    return decode_pull_record(content) if isinstance(content, bytes) else None

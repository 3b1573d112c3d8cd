"""A pull by the real code and the real agent, over files in memory whose power can be cut, its own record among them.

The registry lies in memory and never lies: what one that does can do is tried elsewhere. The unit and its timer are
functions: after a cut the timer goes off again, with what the disk still holds of the record.
"""

import base64
import hashlib
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from unittest.mock import patch

from edge.bundle.sign import sign
from edge.bundle.statement import RING, RingStatement, decode_chain, encode_chain, encode_statement
from edge.delivery.deliverable import DeliveryOptions
from edge.delivery.outcome import Outcome
from edge.deploy.provision.keys import TrustChange, next_chain, public_of, read_public_key
from edge.device.device import Device
from edge.device.durable import Durable
from edge.device.state import Phase
from edge.errors import DeployError
from edge.registry.artifact import TRUST_TYPE, ArtifactLayer, encode_note, with_statement
from edge.registry.reference import TRUST_TAG
from edge.runtime.pull.pull import pull
from edge.runtime.pull.record import PullRecord, decode_pull_record, write_record
from tests.support.agent_push import AgentPush, Report, SignedRelease, StandingDate, in_a_minute
from tests.support.crash import bad, counted, current_of, is_temporary, is_whole, sealed
from tests.support.cut_files import CutFiles
from tests.support.manifests import ssh_key
from tests.support.pushes import device_over
from tests.support.registry import MemoryRegistry

FOLDER = "/var/lib/edge-pull"
RECORD = f"{FOLDER}/pull.json"
TAG = "main-all"
_MADE_AT = datetime(2026, 11, 20, 12, 30, tzinfo=timezone.utc)
SERIAL = int(_MADE_AT.timestamp())
_AS_OFTEN = 4  # pulls after a cut: one that finds a trial without a judge, and those that see its end


class Ring:
    """What a registry says besides: what the ring of `push`'s device is to run, and who counts by the word of a root.

    The device knows the first word of the root from provision; the second lies in the registry.
    """

    def __init__(self, push: AgentPush) -> None:
        layout, folder = push.layout, push.layout.root.parent
        self._promoter, root = ssh_key(folder, "promoter"), ssh_key(folder, "root-key")
        signers = ((folder / "signer", ("edge-release", "edge-release-downgrade")), (self._promoter, ("edge-ring",)))
        added = tuple((read_public_key(key.with_suffix(".pub")), namespaces) for key, namespaces in signers)
        first = next_chain((), TrustChange(added=added), root=root, now=_MADE_AT)
        stolen = read_public_key(ssh_key(folder, "stolen").with_suffix(".pub"))
        self.chain = encode_chain(next_chain(first, TrustChange(revoked=(stolen,)), root=root, now=_MADE_AT))
        layout.trust_root.write_text(public_of(root) + "\n")
        layout.first_trust.write_bytes(encode_chain(first))
        layout.pull_toml.write_text('repository = "registry.example/farms/gates"\nchannel = "main"\n')

    def stated_in(self, registry: MemoryRegistry, release: SignedRelease) -> None:
        """State that the ring runs a release that lies in a registry, and put who counts there."""
        statement = RingStatement(
            channel="main",
            ring="all",
            release=release.name,
            sequence=release.sequence,
            serial=SERIAL,
            created_at=f"{_MADE_AT:%Y-%m-%dT%H:%M:%SZ}",
            valid_until="2066-11-20T12:00:00Z",
        )
        content = encode_statement(statement)
        oci = registry.manifests[registry.tags["latest"]]
        registry.client().tag(with_statement(oci, content, sign(content, self._promoter, RING)), TAG)
        layer = ArtifactLayer(TRUST_TYPE, hashlib.sha256(self.chain).hexdigest(), len(self.chain))
        registry.blobs[layer.sha256] = self.chain
        registry.client().put_manifest(encode_note(TRUST_TYPE, layer), TRUST_TAG)


class AgentPull:
    """The device of `push`, which pulls a release that its ring is to run.

    Args:
        push: the device and its releases.
        ring: what is said besides.
        is_healthy: what the trial of the newer one finds.
        brings: what the ring is to run; None: the newer one.
    """

    def __init__(
        self, push: AgentPush, ring: Ring, *, is_healthy: bool = True, brings: SignedRelease | None = None
    ) -> None:
        self._push, self._is_healthy = push, is_healthy
        self.new = brings or push.new
        self._registry = MemoryRegistry(lambda: 0.0)
        self._registry.put_bundle(self.new.manifest, self.new.signature, self.new.files)
        ring.stated_in(self._registry, self.new)

    def pull(self, device: Device, report: Report) -> None:
        """Pull until the verdict; raise what was not expected."""
        outcome = self.try_pull(device, report)
        assert outcome.result in (("committed", "unchanged") if self._is_healthy else ("rolled-back",)), outcome

    def try_pull(self, device: Device, report: Report, *, build_id: str = "1" * 16) -> Outcome:
        """Pull with what the disk holds of the last one, and return how it ended; who is killed writes nothing more."""
        durable, killed = Durable(device.durable.files), threading.Event()
        connected = self._push.connected(
            device, report, is_healthy=self._is_healthy, killed=killed, build_id=build_id, is_for_pull=True
        )
        with connected as connect, patch("edge.runtime.pull.pull.datetime", StandingDate):
            pulled = pull(
                self._registry.client(TAG),  # type: ignore[arg-type] - what `RegistryClient` does
                connect,
                last=record_on(dict(device.durable.files.tree())),
                options=DeliveryOptions(who="pull"),
                on_event=lambda event: None,
                stop=killed,
                has_root=True,
            )
            if not killed.is_set():
                write_record(Path(RECORD), pulled.record, durable)
        return pulled.outcome

    def pull_or_end(self, device: Device, report: Report) -> None:
        """Pull as often as the timer does in an hour, a minute after an agent or a pull was killed."""
        with patch("edge.runtime.agent.serve.this_moment", in_a_minute):
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
        if current_of(disk) == self.new.name != self._push.old.name:  # the older one came by a push
            yield from _unsaid_on(disk)
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
        elif (
            expected is not None
            and not was_left
            and not (is_whole(disk, self.new) and self.new.counted <= counted(disk))
        ):
            yield f"I7: after the repeated pull {expected} is not as it was signed now, or not counted"
        elif expected is None and current_of(disk) == self.new.name:
            yield f"I7: after the repeated pull {self.new.name} is current, which its trial has refused"
        if sealed(disk, "state.json").get("phase") != Phase.IDLE.value:
            yield "I7: after the repeated pull the state is not idle"
        record = record_on(disk)
        if record is None:
            yield f"I7: after the repeated pull its record says {record and record.result}"
        yield from _unsaid_on(disk)
        yield from self.wrong_on(disk)
        if rest := [path for path in disk if path.startswith(FOLDER) and is_temporary(path)]:
            yield f"I7: the repeated pull left {rest}"


def _unsaid_on(disk: dict) -> Iterator[str]:
    """Yield which word a device has lost, or never had, by which it has taken a release."""
    (serial, _) = sealed(disk, "counters.json").get("rings", {}).get(TAG, (0, ""))
    chain = base64.b64decode(sealed(disk, "trust.json").get("chain", ""))
    if serial != SERIAL:
        yield f"I7: the release is current, and statement {serial} is the last that is known"
    if not chain or decode_chain(chain)[-1].document.version != 2:
        yield "I7: the release is current, and the root's second word is not known"


def record_on(disk: dict) -> PullRecord | None:
    """Return the record on a disk; None where there is none that can be read."""
    content = disk.get(RECORD)
    return decode_pull_record(content) if isinstance(content, bytes) else None

"""A push of one bundle to any target of an inventory, and the way back, over OpenSSH."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from edge.bundle.manifest import Role
from edge.capacity.fit import machines_among
from edge.config.pipeline import Pipeline, load_pipeline
from edge.config.targets import Target
from edge.deadline import Deadline
from edge.delivery.deliver import deliver
from edge.delivery.deliverable import Deliverable, DeliveryOptions
from edge.delivery.link import Interrupted, Link
from edge.delivery.outcome import DONE, INTERRUPTED, OnEvent, Outcome, Report
from edge.delivery.verdict import COMMITTED, elapsed_s, failed_by, is_on_trial, verdict_of
from edge.deploy.fleet.rollout import PushOne
from edge.deploy.packing.bounds import check_bound
from edge.errors import DeployError, EdgeError
from edge.reports import Facts, LastSwitch
from edge.transport.channel import Channel
from edge.transport.ssh import SshAddress, SshChannel
from edge.wire.peer import Nothing
from edge.wire.release import LockRequest, RollbackRequest
from edge.wire.verbs import LOCK, ROLLBACK, STATUS, StateReport

__all__ = ["LOGIN", "BoundOfDevices", "address_of", "connect_to", "push_over_ssh", "roll_back"]

LOGIN = "edge-deploy"
"""Whom `provision` makes on a device for pushes, and for nothing else."""


def address_of(target: Target) -> SshAddress:
    return SshAddress(
        host=target.host,
        user=target.user or LOGIN,
        port=target.port,
        identity=target.identity,
        config=target.ssh_config,
    )


def connect_to(target: Target) -> Channel:
    """The caller closes it."""
    return SshChannel(address_of(target))


def push_over_ssh(bundle: Deliverable, options: DeliveryOptions) -> PushOne:
    judge = BoundOfDevices(bundle)

    return lambda target, on_event, stop: deliver(
        bundle,
        lambda: connect_to(target),
        target=target.name,
        options=options,
        on_event=on_event,
        stop=stop,
        judge=judge,
    )


_NEEDED = (Role.PIPELINE, Role.MODEL, Role.CALIBRATION, Role.CERTIFICATE)


class BoundOfDevices:
    """Judges one release; thread-safe. What cannot be read of it is for the device to say."""

    def __init__(self, bundle: Deliverable) -> None:
        self._bundle = bundle
        self._lock = threading.Lock()
        self._known: dict[tuple[str, ...], tuple[str, ...] | DeployError] = {}

    def __call__(self, facts: Facts) -> Sequence[str]:
        """Return what speaks against it on a device; DeployError `preflight.capacity` if the release refuses that."""
        classes = tuple(sorted(platform.called for platform in machines_among(facts.compatible)))
        if not classes:
            return ()
        with self._lock:
            if classes not in self._known:
                self._known[classes] = self._found(classes)
            found = self._known[classes]
        if isinstance(found, DeployError):
            raise found
        return found

    def _found(self, classes: tuple[str, ...]) -> tuple[str, ...] | DeployError:
        with tempfile.TemporaryDirectory(prefix="edge-bound-") as folder:
            try:
                return check_bound(self._pipeline(Path(folder)), classes, is_sure=True)
            except DeployError as error:
                return error if error.code.startswith("preflight.") else ()
            except EdgeError:
                return ()

    def _pipeline(self, folder: Path) -> Pipeline:
        """Return the pipeline of the release, its files copied to where a model can be read."""
        manifest = self._bundle.manifest
        for file in (one for role in _NEEDED for one in manifest.files_of(role)):
            place = folder / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            with self._bundle.opened(file) as content:
                place.write_bytes(content.read())
        return load_pipeline(folder / manifest.files_of(Role.PIPELINE)[0].path, is_for_here=False)


_WATCH_PAUSE_S = 1.0
_ALL_S = 2400.0  # the restart, and as long as the trial is watched
_WATCH_S = 1200.0  # the longest usual trial of a release whose manifest is not here, and a restart


def roll_back(
    to: str | None, options: DeliveryOptions, *, connect: Callable[[Target], Channel] = connect_to
) -> PushOne:
    """Return what takes a target back to the release before, or to the kept release `to`."""
    within_s = _ALL_S if options.deadline_s is None else options.deadline_s

    def one(target: Target, on_event: OnEvent, stop: threading.Event) -> Outcome:
        try:
            with contextlib.closing(Link(connect(target), stop, Deadline.after(within_s))) as link:
                release = _go_back(link, to, options, Report(target.name, on_event), stop)
        except Interrupted:
            return Outcome(target=target.name, release=to, result="interrupted", exit_code=INTERRUPTED)
        except DeployError as error:
            return failed_by(error, target=target.name, release=to)
        landed = f"to {release or 'no release'}"
        return Outcome(target=target.name, release=release, result="rolled-back", problem=landed, exit_code=DONE)

    return one


def _go_back(link: Link, to: str | None, options: DeliveryOptions, report: Report, stop: threading.Event) -> str | None:
    with report.phase("lock"):
        link.ask(LOCK, LockRequest(who=options.who, why="rollback", in_trial=True))
    status = link.ask(STATUS, Nothing())
    # A person goes back above all where something is damaged; the state may be it.
    before = status.state.last if isinstance(status.state, StateReport) else None
    with report.phase("switch"):
        answer = link.ask(ROLLBACK, RollbackRequest(to=to), report.taker("switch"))
    if answer.note:
        report.note("switch", answer.note)
    if answer.on_trial and to is not None:
        _watch(link, to, before, report, stop)
    return answer.release


def _watch(link: Link, release: str, before: LastSwitch | None, report: Report, stop: threading.Event) -> None:
    deadline = Deadline.after(_WATCH_S)
    with report.phase("trial"):
        while (verdict := verdict_of(status := link.ask(STATUS, Nothing()), release, before)) != COMMITTED:
            if isinstance(verdict, DeployError):
                raise verdict
            if not is_on_trial(status, release) or deadline.is_over:
                raise DeployError(
                    "trial.undecided",
                    f"the device has not judged release {release}",
                    hint="look at edge-deploy status and edge-deploy logs",
                )
            report.far("trial", elapsed_s(status), None)
            if stop.wait(_WATCH_PAUSE_S):
                raise Interrupted

"""Makes what belongs to single streams: their sources, what they may ask for, which classes they report.

Which streams are up, as subscribers see it: one retained message per stream, and the device's state over them.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from edge.config.pipeline import Pipeline
from edge.config.schema import StreamConfig
from edge.config.uris import local_path
from edge.document import Location
from edge.media.camera import StreamStatus
from edge.media.rate import Caps
from edge.media.select import make_source
from edge.protocols import FrameSource, Publisher
from edge.publish.discovery import nothing_of
from edge.publish.frames import rfc3339_from_ns
from edge.publish.messages import DeviceState, StateMessage, StreamStateMessage
from edge.runtime.pipeline.loop import IgnoredArea, StreamFilter
from edge.runtime.pipeline.shares import Terms
from edge.types import ModelSpec, StreamId, StreamState

__all__ = ["StreamMaker", "StreamStates", "class_ids_at", "stated_rates", "stream_filters", "terms_of"]


class StreamStates:
    """Takes status changes from any thread and publishes those that are news; `on_change` hears of each one first.

    Only `finish` reports that a stream has ended: its last frames are on their way then, and what is found in them.
    """

    def __init__(
        self,
        streams: Sequence[StreamId],
        publisher: Publisher,
        *,
        device: str,
        on_change: Callable[[StreamStatus], None] = lambda status: None,
    ) -> None:
        self._on_change = on_change
        self._lock = threading.Lock()
        self._publisher = publisher
        self._device = device
        self._statuses = {stream: _starting(stream) for stream in streams}
        self._device_state: tuple[DeviceState, str | None] = ("online", None)
        self._alarms: dict[str, str] = {}
        self._ending: dict[StreamId, tuple[StreamStatus, str]] = {}
        self._overloads: dict[StreamId, str] = {}

    def statuses(self) -> Mapping[StreamId, StreamStatus]:
        with self._lock:
            return dict(self._statuses)

    def change(self, status: StreamStatus) -> None:
        since = rfc3339_from_ns(time.time_ns())
        is_end = status.state is StreamState.ENDED
        with self._lock:
            self._ending.pop(status.stream, None)
            if is_end:
                self._statuses[status.stream] = status
                self._ending[status.stream] = status, since
        if not is_end:
            self._tell(status, since)

    @property
    def ending(self) -> Collection[StreamId]:
        """The streams that have ended, which was not told yet."""
        with self._lock:
            return tuple(self._ending)

    def finish(self, stream: StreamId) -> None:
        """Tell that a stream has ended, if it has: nothing more is found in it."""
        with self._lock:
            ended = self._ending.pop(stream, None)
        if ended is not None:
            self._tell(*ended)

    def add(self, stream: StreamId) -> None:
        """Record a stream that was not there, or that begins anew."""
        with self._lock:
            self._statuses.setdefault(stream, _starting(stream))

    def remove(self, stream: StreamId) -> None:
        """Forget a stream that is no longer read, and let the broker forget it."""
        with self._lock:
            self._statuses.pop(stream, None)
            self._ending.pop(stream, None)
            self._overloads.pop(stream, None)
            for nothing in nothing_of(stream):
                self._publisher.publish(nothing)
            self._publish_device(rfc3339_from_ns(time.time_ns()))

    def fail(self, stream: StreamId, reason: str) -> None:
        """Record that a stream was given up by us."""
        before = self.statuses()[stream]
        self.change(replace(before, state=StreamState.DOWN, reason=reason))

    def overload(self, stream: StreamId, what: str | None) -> None:
        """`what`: that frames come and are not inferred; None: they are again."""
        with self._lock:
            self._overloads.pop(stream, None)
            if what is not None:
                self._overloads[stream] = what
            status = self._statuses.get(stream)
            if status is not None and status.state is StreamState.UP:
                self._publish_stream(status, rfc3339_from_ns(time.time_ns()))

    def alarm(self, what: str | None, *, about: str = "heat") -> None:
        """Record what is wrong with the machine itself; None: nothing any more, as far as it is about this.

        Each wording reaches subscribers and stands until the next one: it has no figures that change meanwhile.
        """
        with self._lock:
            if self._alarms.get(about) == what:
                return
            self._alarms.pop(about, None)
            if what is not None:
                self._alarms[about] = what
            self._publish_device(rfc3339_from_ns(time.time_ns()))

    @property
    def device_state(self) -> tuple[DeviceState, str | None]:
        """How the device stands as a whole, and why where something is wrong."""
        with self._lock:
            return self._device_state

    def _tell(self, status: StreamStatus, since: str) -> None:
        self._on_change(status)
        with self._lock:
            self._statuses[status.stream] = status
            self._publish_stream(status, since)
            self._publish_device(since)

    def _publish_stream(self, status: StreamStatus, since: str) -> None:
        is_up = status.state is StreamState.UP
        overload = self._overloads.get(status.stream) if is_up else None
        self._publisher.publish(
            StreamStateMessage(
                device=self._device,
                stream=status.stream,
                state=status.state.value if overload is None else "degraded",
                reason=overload if is_up else status.reason,
                since=since,
            )
        )

    def _publish_device(self, since: str) -> None:
        # A file that was read to its end is no fault; neither is a camera that has not answered yet.
        down = [stream for stream, status in self._statuses.items() if status.state is StreamState.DOWN]
        wrong = [*([f"down: {', '.join(down)}"] if down else []), *self._alarms.values()]
        state: DeviceState = "degraded" if wrong else "online"
        reason = "; ".join(wrong) or None
        if (state, reason) != self._device_state:
            self._device_state = (state, reason)
            self._publisher.publish(StateMessage(device=self._device, state=state, since=since, reason=reason))


def _starting(stream: StreamId) -> StreamStatus:
    return StreamStatus(stream=stream, state=StreamState.CONNECTING, reason="starting", reconnects=0)


def stream_filters(pipeline: Pipeline, spec: ModelSpec) -> dict[StreamId, StreamFilter]:
    """Return filters where a stream leaves detections out. Raises `ConfigError` if the model has no such label."""
    filters = {}
    for index, stream in enumerate(pipeline.config.streams):
        where = ("streams", index)
        reported = None
        if stream.classes is not None:
            reported = np.array(pipeline.class_ids((*where, "classes"), stream.classes, spec.labels), np.int32)
        ignored = [
            IgnoredArea(
                polygon=area.polygon,
                class_ids=class_ids_at(pipeline, (*where, "ignore", number, "classes"), area.classes, spec.labels),
            )
            for number, area in enumerate(stream.ignore)
        ]
        if reported is not None or ignored:
            filters[StreamId(stream.id)] = StreamFilter(reported, ignored, classes=len(spec.labels))
    return filters


def class_ids_at(
    pipeline: Pipeline, where: Location, wanted: Sequence[str] | None, labels: Sequence[str]
) -> frozenset[int] | None:
    """Return the ids of the classes that a key of the file names; None: it is left out. Errors as `class_ids`."""
    return None if wanted is None else frozenset(pipeline.class_ids(where, wanted, labels))


def terms_of(stream: StreamConfig) -> Terms:
    max_age_ns = None if stream.max_age_ms is None else round(stream.max_age_ms * 1e6)
    return Terms(priority=stream.priority, max_age_ns=max_age_ns, max_fps=stream.max_fps)


def stated_rates(pipeline: Pipeline) -> dict[StreamId, float | None]:
    """Return the rate of each live stream; None where it states none."""
    folder = pipeline.path.parent
    streams = pipeline.config.streams
    live = [stream for stream in streams if stream.realtime or local_path(stream.uri, folder) is None]
    return {StreamId(stream.id): stream.max_fps for stream in live}


@dataclass(frozen=True, slots=True)
class StreamMaker:
    """Makes sources for one model, that report to one place and take their orders from one."""

    spec: ModelSpec
    states: StreamStates
    orders: Caps = field(default_factory=Caps)

    def source(self, pipeline: Pipeline, stream: StreamConfig) -> FrameSource:
        """Return a source that is not open yet; errors as `make_source`."""
        return make_source(
            stream,
            preprocess=self.spec.preprocess,
            base_dir=pipeline.path.parent,
            credential=functools.partial(_user_and_password, pipeline, pipeline.config.streams.index(stream)),
            on_status=self.states.change,
            cap=self.orders.of(stream.id),
        )


def _user_and_password(pipeline: Pipeline, index: int) -> tuple[str, str] | None:
    login = pipeline.login_of_stream(index)
    return None if login is None else (login.user, login.password)

"""The MQTT publisher: accepts at any time, connects automatically, and never loses a number without saying so."""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from edge.config.credentials import Credential
from edge.config.schema import MqttConfig
from edge.errors import ConfigError
from edge.protocols import TopicMessage
from edge.publish.frames import rfc3339_from_ns
from edge.publish.message import RetainedBytes
from edge.publish.messages import InfoMessage, StateMessage, StreamStateMessage
from edge.publish.mqtt.client import Connection, Waker, Will, seek, waits_for_return
from edge.publish.mqtt.endpoint import Endpoint, endpoint_from_config, topic_root
from edge.publish.mqtt.session import MqttSession, least_packet_bytes
from edge.publish.mqtt.suspects import Suspects
from edge.publish.mqtt.trouble import ADAPTABLE, BrokerBackoff, BrokerError, ProtocolChoice, Trouble
from edge.publish.mqtt.window import Lag, Window
from edge.publish.outbox.recovery import SpoolPlace, open_outbox

__all__ = ["MqttPublisher"]

# MqttSession numbers have to grow over connections and over starts without a disk write for each connection.
_SESSIONS_PER_EPOCH = 1_000_000
_IDLE_POLL_S = 1.0
_FAREWELL_S = 1.0
# What has waited longer goes to the topic of late messages, behind those of now.
LIVE_S = 2.0

# Without a broker for so long, the device is degraded: a restart of the broker takes less.
NO_BROKER_S = 30.0

# A message that is on its way to a connected broker is written to the disk after so many round trips.
_PATIENT_ROUND_TRIPS = 2

_WORDED_S = 10.0  # so far apart are two wordings of a broker that cannot be reached

# Here one more attempt would do harm, or no good: a person has to act.
_NO_LAST_ATTEMPT = frozenset({Trouble.REFUSED, Trouble.TAKEN_OVER, *ADAPTABLE})

_State = TypeVar("_State", StateMessage, StreamStateMessage)

_log = logging.getLogger(__name__)


class MqttPublisher:
    """A `Publisher` with one thread of its own, which owns the connection and everything on it.

    The birth (`info`), the device's state and the state of each stream are sent again after every reconnect. A
    published `StateMessage` gets the session number of the connection that carries it. `credential` and the files of
    TLS are read before each connection: they may have been put right. Raises `ConfigError` when the configuration
    cannot be used; an unreachable broker is no error. `status` is one sentence for people, without secrets.
    """

    is_broken = False  # a broker may come back, and what is wrong may be mended there

    def __init__(
        self,
        config: MqttConfig,
        *,
        info: InfoMessage,
        credential: Callable[[], Credential | None] = lambda: None,
        base_dir: Path | None = None,
        max_bytes: int = 8 << 20,
        run_path: Path | None = None,
        spool: SpoolPlace | None = None,
        close_timeout_s: float = 5.0,
        ack_timeout_s: float = 15.0,
        live_s: float = LIVE_S,
        backoff: BrokerBackoff | None = None,
    ) -> None:
        self._device = info.device
        self._root = f"{topic_root(config)}/{info.device}"
        configured = functools.partial(endpoint_from_config, config, client_id=f"edge-{info.device}", base_dir=base_dir)
        self._read_endpoint: Callable[[], Endpoint] = lambda: configured(credential=credential())
        self._endpoint, self._unread = self._read_endpoint(), ""
        self.is_connected = self._is_asleep = self._is_away = False
        self._window = Window()
        self._outbox, self._keeper = open_outbox(
            info,
            max_bytes=max_bytes,
            live_s=live_s,
            run_path=run_path,
            spool=spool,
            on_more=self._wake,
            patience_s=self._patience_s,
        )
        self._suspects = Suspects()
        self._lag: Lag | None = None
        self._serving: MqttSession | None = None
        self._close_timeout_s, self._ack_timeout_s = close_timeout_s, ack_timeout_s
        self._backoff = backoff or BrokerBackoff()
        self._protocol = ProtocolChoice(config.protocol)
        self._will = Will(topic=f"{self._root}/state", payload=b"")
        self._epoch, self._session = info.epoch, info.epoch * _SESSIONS_PER_EPOCH
        self._state = StateMessage(device=info.device, state="online", since=_now())
        self._streams: dict[str, StreamStateMessage] = {}
        self._state_lock = threading.Lock()
        self._connections = 0
        self.status = self._said = f"connecting to {self._endpoint}"
        self._said_s = 0.0
        self._waker = Waker()
        self._closing, self._nudge = threading.Event(), threading.Event()
        self._deadline_s, self._lost_at_s = float("inf"), time.monotonic()
        if self._endpoint.credential is not None and self._endpoint.tls is None:
            _log.warning("password travels in plain text broker=%s: use TLS", self._endpoint)
        self._outbox.put(info)
        self._thread = threading.Thread(target=self._run, name="mqtt-publisher", daemon=True)
        for thread in (self._keeper, self._thread):
            if thread is not None:
                thread.start()

    @property
    def alarm(self) -> str | None:
        """The fault of the disk that keeps unsent messages over a power cut; a broker that refuses, or stays away."""
        disk = None if self._keeper is None else self._keeper.trouble.alarm
        session = self._serving
        refused = None if session is None else session.refusal
        # Without a figure that grows: the device's state is sent anew with each change of its words.
        is_away = not self.is_connected and time.monotonic() - self._lost_at_s >= NO_BROKER_S
        return "; ".join(filter(None, (disk, refused, f"no broker: {self._said}" if is_away else None))) or None

    def publish(self, message: TopicMessage) -> None:
        """Accept a message; when the bounds are reached the oldest numbered ones go, and are declared."""
        if self._closing.is_set():
            return
        if isinstance(message, StateMessage | StreamStateMessage):
            self._publish_state(message)
        else:
            if isinstance(message, RetainedBytes):  # nothing, on the topic of a stream's state
                with self._state_lock:
                    self._streams.pop(message.topic, None)
            self._outbox.put(message)
        self._wake()

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything accepted is acknowledged by the broker; return whether it is.

        A wait before the next attempt to connect is cut short, once.
        """
        self._nudge.set()
        return self._outbox.wait_idle(timeout_s)

    def counts(self) -> Mapping[str, int]:
        """Return the outbox's balance, `connections` made so far, and the largest window: so many may come twice."""
        return {
            **self._outbox.counts(),
            "connected": int(self.is_connected),
            "connections": self._connections,
            "largest_window": self._window.largest,
            **({} if self._keeper is None else self._keeper.counts()),
        }

    def by_output(self) -> Mapping[str, Mapping[str, int]]:
        return {"mqtt": self.counts()}

    def close(self) -> None:
        """Deliver what can be delivered in time, mark streams and device as stopped, disconnect. Twice is no error."""
        if not self._closing.is_set():
            self._deadline_s = time.monotonic() + self._close_timeout_s
            self._publish_state(StateMessage(device=self._device, state="stopping", since=_now(), reason="stopped"))
            self._closing.set()
            self._nudge.set()
            self._waker.wake()
        self._thread.join(self._close_timeout_s + self._endpoint.connect_timeout_s)

    def _wake(self) -> None:
        if self._is_asleep:
            self._is_asleep = False  # the others of a batch need not
            self._waker.wake()

    def _patience_s(self) -> float:
        """Return how long a message may be on its way to a far broker before it counts as one that waits."""
        return _PATIENT_ROUND_TRIPS * (self._window.round_trip_s or 0.0) if self.is_connected else 0.0

    def _publish_state(self, message: StateMessage | StreamStateMessage) -> None:
        with self._state_lock:
            if isinstance(message, StateMessage):
                self._state = message
                message = self._state_now()
            else:
                self._streams[message.topic] = message
                message = self._stamped(message)
            self._outbox.put(message)

    def _stamped(self, message: _State) -> _State:
        return msgspec.structs.replace(message, epoch=self._epoch, session=self._session)

    def _state_now(self) -> StateMessage:
        """Return the device's state with what only we know: the session, and that messages come late."""
        state, reason = self._state.state, self._state.reason
        lag = None if self._lag is None else self._lag.reason
        if lag is not None and state in ("online", "degraded"):
            state, reason = "degraded", lag if reason is None else f"{reason}; {lag}"
        return self._stamped(msgspec.structs.replace(self._state, state=state, reason=reason))

    def _run(self) -> None:
        is_over = False
        while not self._closing.is_set() or (not is_over and time.monotonic() < self._deadline_s):
            # Once it is closed, an attempt that was begun since has to fail: the broker may be back by then.
            began_s, is_last = time.monotonic(), self._closing.is_set()
            try:
                self._serve(self._connect())
                break
            except BrokerError as error:
                trouble = error
            except Exception:  # the border of the thread: a broker that sends nonsense must not end the publishing
                _log.exception("publishing failed broker=%s", self._endpoint)
                trouble = BrokerError(Trouble.LOST, "the broker's answer was not understood")
            is_over = self._recover(trouble, began_s, is_last=is_last)
        if self._keeper is not None:
            self._keeper.close()
        left = self._outbox.end()
        if left:
            what = "kept for the next start" if self._keeper is not None and self._keeper.is_kept else "lost"
            _log.warning("messages not delivered at shutdown count=%d: %s status=%s", left, what, self.status)
        self._waker.close()

    def _read_again(self) -> None:
        """Read login and certificates; those that cannot be read stay as they were."""
        unread = ""
        try:
            self._endpoint = self._read_endpoint()
        except ConfigError as error:
            unread = f"login and certificates stay as they were: {error}"
        if unread not in ("", self._unread):
            _log.warning("broker status=%s", unread)
        self._unread = unread

    def _connect(self) -> Connection:
        if self._is_away:  # an authority's files are not read each second of a long outage
            seek(self._endpoint_in_time())
        self._read_again()
        with self._state_lock:
            self._session += 1
        state = self._stamped(self._state)
        offline = msgspec.structs.replace(state, state="offline", since=None, reason="connection lost")
        will = dataclasses.replace(self._will, payload=offline.encode())
        return Connection(self._endpoint_in_time(), version=self._protocol.version, will=will)

    def _endpoint_in_time(self) -> Endpoint:
        left_s = max(0.1, self._deadline_s - time.monotonic())
        return dataclasses.replace(self._endpoint, connect_timeout_s=min(self._endpoint.connect_timeout_s, left_s))

    def _serve(self, connection: Connection) -> None:
        limit, least = connection.limits.packet_bytes, least_packet_bytes(self._device, self._root)
        if limit is not None and limit < least:
            connection.close()
            raise BrokerError(
                Trouble.REFUSED,
                f"expected packets of {least} bytes at least, which a gap record takes, got a limit of {limit}",
                hint="raise the broker's limit on packets; messages wait until then",
            )
        self._protocol.accepted()
        self._connections += 1
        self.is_connected = True
        with self._state_lock:
            self._lag = Lag(self._outbox)
            for message in (self._state_now(), *map(self._stamped, self._streams.values())):
                self._outbox.put(message)
        self._say(logging.INFO, f"connected to {self._endpoint}, {self._protocol.name}")
        session = MqttSession(
            connection,
            self._outbox,
            root=self._root,
            ack_timeout_s=self._ack_timeout_s,
            suspects=self._suspects,
            window=self._window,
        )
        self._serving = session
        try:
            while not self._closing.is_set():
                self._step(session)
                self._look_at_lag(self._lag)
            self._say_goodbye(session)
            connection.close()
            self.is_connected = False
            self.status = "closed"
        except BaseException:
            connection.abandon()
            raise

    def _step(self, session: MqttSession, *, timeout_s: float = _IDLE_POLL_S) -> None:
        # The flag is raised before the last look at the outbox: a later put sees it and wakes us.
        self._is_asleep = session.is_ready
        session.step(0 if session.has_work else timeout_s, self._waker)
        self._is_asleep = False

    def _look_at_lag(self, lag: Lag) -> None:
        if not lag.look(self._window):
            return
        if lag.reason is None:
            _log.info("publishing keeps up again broker=%s", self._endpoint)
        else:
            _log.warning("%s broker=%s", lag.reason, self._endpoint)
        with self._state_lock:
            self._state = msgspec.structs.replace(self._state, since=_now())
            self._outbox.put(self._state_now())

    def _say_goodbye(self, session: MqttSession) -> None:
        self._drain(session, self._deadline_s - _FAREWELL_S)
        for state in self._streams.values():
            self._publish_state(msgspec.structs.replace(state, state="down", reason="stopped", since=_now()))
        self._publish_state(StateMessage(device=self._device, state="offline", since=_now(), reason="stopped"))
        self._drain(session, self._deadline_s)

    def _drain(self, session: MqttSession, deadline_s: float) -> None:
        while not self._outbox.wait_idle(0.0) and time.monotonic() < deadline_s:
            self._step(session, timeout_s=0.1)

    def _recover(self, trouble: BrokerError, began_s: float, *, is_last: bool) -> bool:
        """Take everything unacknowledged back, adapt to what the broker cannot do, wait.

        Return whether a stop makes no further attempt.
        """
        now_s = time.monotonic()
        lived_s = now_s - began_s if self.is_connected else 0.0
        self._lost_at_s = now_s if self.is_connected else self._lost_at_s
        self.is_connected = self._is_asleep = False
        session, self._serving = self._serving, None
        is_trial = session is not None and session.is_trial
        if session is not None:
            session.lost(trouble)
        elif trouble.kind is Trouble.UNREACHABLE:
            self._suspects.forgive()
        is_adapted = self._adapt(trouble.kind)
        delay_s = self._backoff.delay_s(
            trouble.kind, lived_s=lived_s, now_s=now_s, is_adapted=is_adapted, is_trial=is_trial
        )
        is_over = delay_s > 0 and (is_last or trouble.kind in _NO_LAST_ATTEMPT)
        was_away, self._is_away = self._is_away, trouble.kind is Trouble.UNREACHABLE
        least_s = _WORDED_S if was_away and self._is_away else 0.0
        text = f"not connected to {self._endpoint}: {trouble}"
        self._say(logging.WARNING, text, next_try_s=delay_s, least_s=least_s)
        if trouble.kind in _NO_LAST_ATTEMPT:
            self._closing.wait(delay_s)
        elif not is_over:
            self._nudge.clear()
            if not self._closing.is_set():
                for wait_s in waits_for_return(self._endpoint, delay_s):
                    if self._nudge.wait(wait_s):
                        break
        return is_over

    def _adapt(self, kind: Trouble) -> bool:
        """Ask for less, if there is less to ask for; return whether the next CONNECT is another one."""
        before = self._will
        if kind is Trouble.NO_RETAIN:
            self._will = dataclasses.replace(before, is_retained=False)
        elif kind is Trouble.NO_QOS_1:
            self._will = dataclasses.replace(before, qos=0)
        return self._protocol.failed(kind) or self._will != before

    def _say(self, level: int, text: str, *, next_try_s: float | None = None, least_s: float = 0.0) -> None:
        """Keep the status; log it if it differs from the last one logged, at least `least_s` after that."""
        self.status = text if next_try_s is None else f"{text}; next try in {next_try_s:.1f} s"
        now_s = time.monotonic()
        if text == self._said or now_s - self._said_s < least_s:
            return
        self._said, self._said_s = text, now_s
        _log.log(level, "broker status=%s", self.status)


def _now() -> str:
    return rfc3339_from_ns(time.time_ns())

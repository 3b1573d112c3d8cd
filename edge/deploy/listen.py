"""`edge-deploy listen`: what the devices of a site say, for people, for programs, or as a report of missing numbers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import msgspec

from edge.config.credentials import Credential
from edge.config.schema import MqttConfig
from edge.deadline import NEVER, Deadline
from edge.errors import DeployError
from edge.publish.ledger import Account, AccountKey, Ledger, NumberedMessage
from edge.publish.message import WireMessage
from edge.publish.messages import (
    CountsMessage,
    DeployMessage,
    DetectionsMessage,
    EventMessage,
    GapMessage,
    InfoMessage,
    OccupancyMessage,
    PullMessage,
    StateMessage,
    StreamStateMessage,
)
from edge.publish.mqtt.subscriber import Arrival, Subscriber, devices_by_site
from edge.reading import json_value
from edge.registry.reference import PullSettings
from edge.untrusted import cleaned, cleaned_json

__all__ = ["ListenOptions", "for_people", "line_from_message", "listen"]

_DONE = 0
_UNHEARD = 3
_MISSING = 4
_JPEG = b"\xff\xd8"  # as a file of that kind begins
_MAX_SHOWN = 8
_MOST_LETTERS = 200
_QUIET_S = 3.0
_GAPS_EVERY_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """The messages to listen to and their form. `device` is a name, or `+` for all; without a limit it goes on."""

    mqtt: MqttConfig
    device: str = "+"
    client_id: str | None = None
    credential: Credential | None = None
    base_dir: Path | None = None
    is_json: bool = False
    is_gaps: bool = False
    duration_s: float | None = None
    max_messages: int | None = None


def listen(options: ListenOptions, out: TextIO, *, progress: TextIO | None = None) -> int:
    """Write what arrives to `out` until the limit or an interrupt; return the exit code.

    With `is_gaps` only losses are written, and a report at the end; 4: undeclared numbers are missing, 3: nothing came.
    Raises ConfigError; PublishError when the broker cannot be reached at first (later losses go to `progress` and
    retried); BrokenPipeError when `out` was closed by its reader.
    """
    subscriber = Subscriber(
        options.mqtt,
        device=options.device,
        client_id=options.client_id,
        credential=options.credential,
        base_dir=options.base_dir,
    )
    stderr = progress or sys.stderr
    subscriber.open()
    _write(stderr, f"listening to {subscriber}")
    gaps = _Gaps(out, is_json=options.is_json)
    try:
        count = _show_all(subscriber, options, gaps, out, lambda text: _write(stderr, text))
    finally:
        subscriber.close()
        if options.is_gaps:
            gaps.tell()
            _report(gaps.ledger, out, is_json=options.is_json)
    if not options.is_gaps:
        return _DONE
    return _MISSING if gaps.ledger.missing else _DONE if count else _UNHEARD


def for_people(message: WireMessage | None) -> WireMessage | None:
    """Return the message with texts cleaned for a terminal and cut; None if it is none of ours.

    An address that is no address is not shown: somebody may paste it into a shell.
    """
    if message is None:
        return None
    try:
        if isinstance(message, PullMessage) and message.repository is not None:
            PullSettings(repository=message.repository)
        return msgspec.convert(cleaned_json(msgspec.to_builtins(message), most=_MOST_LETTERS), type(message))
    except (ValueError, DeployError):  # msgspec.ValidationError is one
        return None


def line_from_message(message: WireMessage) -> str:
    match message:
        case DetectionsMessage():
            objects = ", ".join(
                _object(item.label, item.class_id, item.score) for item in message.detections[:_MAX_SHOWN]
            )
            more = len(message.detections) - _MAX_SHOWN
            found = (objects or "nothing") + (f" and {more} more" if more > 0 else "")
            return f"{_clock(message.captured_at)} {message.device}/{message.stream} #{message.seq} {found}"
        case EventMessage():
            where = f"{message.device}/{message.stream}"
            return f"{_clock(message.captured_at)} {where} event #{message.seq} {_did(message)}"
        case OccupancyMessage():
            counts = ", ".join(f"{name} {sum(by_label.values())}" for name, by_label in message.zones.items())
            where = f"; zones: {counts}" if counts else ""
            objects = _counted(message.objects) or ("no objects" if message.state == "following" else "")
            return f"{message.device}/{message.stream} {message.state}{objects and ', '}{objects}{where}"
        case CountsMessage():
            counts = _counted(message.objects)
            return f"{message.device}/{message.stream} {message.state}{counts and ', '}{counts}"
        case GapMessage():
            numbers = f"#{message.from_} to #{message.to}" if message.to is not None else f"from #{message.from_} on"
            what = "lost events" if message.of == "events" else "lost"
            return f"{message.device}/{message.stream} {what} {numbers}: {message.reason}"
        case StreamStateMessage():
            return f"{message.device}/{message.stream} {message.state}{_because(message.reason)}"
        case StateMessage():
            return f"{message.device} {message.state}{_because(message.reason)}"
        case InfoMessage():
            model = f"{message.model.name} {message.model.precision}"
            return f"{message.device} runs edge {message.software}, {model}, streams {', '.join(message.streams)}"
        case DeployMessage():
            return f"{message.device} {message.result} release {message.release}{_because(message.reason)}"
        case _:
            return f"{message.device} {_fetched(message) if isinstance(message, PullMessage) else message.schema}"


def _show_all(
    subscriber: Subscriber, options: ListenOptions, gaps: _Gaps, out: TextIO, say: Callable[[str], None]
) -> int:
    until = NEVER if options.duration_s is None else Deadline.after(options.duration_s)
    quiet, next_gaps = Deadline.after(_QUIET_S), Deadline.after(_GAPS_EVERY_S)
    count = 0
    for arrival in subscriber.receive(on_status=say):
        if until.is_over:
            break
        if options.is_gaps and next_gaps.is_over:
            gaps.tell()
            next_gaps = Deadline.after(_GAPS_EVERY_S)
        if arrival is None:
            if quiet.is_over and count == 0 and subscriber.is_connected:
                quiet = NEVER
                say(_nothing_yet(options))
            continue
        _show(arrival, options, gaps.ledger, out)
        count += 1
        if count == options.max_messages:
            break
    return count


def _nothing_yet(options: ListenOptions) -> str:
    """Return who is at the broker instead: of a device that is there, its state would have come at once."""
    mqtt = options.mqtt
    there = devices_by_site(mqtt, credential=options.credential, base_dir=options.base_dir, within_s=_QUIET_S)
    said = f"nothing yet from {mqtt.prefix}/{mqtt.site}/{options.device}"
    if not there:
        return f"{said}; no device of ours is under {mqtt.prefix}, or this login may not read there (--credential)"
    sites = "; ".join(f"{site}: {_few(devices)}" for site, devices in list(there.items())[:_MAX_SHOWN])
    return f"{said}; this broker knows {sites}"


def _few(names: list[str]) -> str:
    more = len(names) - _MAX_SHOWN
    return ", ".join(names[:_MAX_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _show(arrival: Arrival, options: ListenOptions, ledger: Ledger, out: TextIO) -> None:
    """Write a message, or with `is_gaps` only enter it into the accounts."""
    message = for_people(arrival.message)
    if options.is_gaps:
        if isinstance(message, NumberedMessage):
            ledger.enter(message)
    elif options.is_json:
        _write(out, _raw_line(arrival))
    elif not arrival.payload:
        _write(out, f"{arrival.topic}: taken away")
    elif message is None and arrival.payload.startswith(_JPEG):
        _write(out, f"{arrival.topic}: a picture, {len(arrival.payload)} bytes")
    elif message is None:
        _write(out, f"{arrival.topic}: not a message of edge-deploy, {len(arrival.payload)} bytes")
    else:
        _write(out, line_from_message(message))


def _raw_line(arrival: Arrival) -> str:
    """Return topic and payload as one JSON object; a payload that is empty, no JSON or too deep to hand on is null."""
    try:
        return _json_line({"topic": arrival.topic, "payload": json_value(arrival.payload)})
    except (ValueError, RecursionError):
        return _json_line({"topic": arrival.topic, "payload": None})


def _json_line(value: object) -> str:
    """Return JSON for a program to read, every character of it, and for a terminal to show: see `cleaned`."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if text.isprintable():
        return text
    # Outside of its strings there is nothing but ASCII; inside, JSON spells any character by its number.
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


class _Gaps:
    """Accounts, and what was said of each: late messages fill a gap one by one, so a look now and then is enough."""

    def __init__(self, out: TextIO, *, is_json: bool) -> None:
        self.ledger = Ledger()
        self._out, self._is_json = out, is_json
        self._told: dict[AccountKey, tuple[object, object]] = {}

    def tell(self) -> None:
        """Write what is missing or declared by now, of the accounts where that is not what was written last."""
        for key, account in self.ledger.accounts.items():
            facts = _account_facts(key, account)
            found = facts["missing"], facts["declared"]
            if found != self._told.get(key, ([], [])):
                self._told[key] = found
                _write(self._out, _json_line({"event": "missing", **facts}) if self._is_json else _change_line(facts))


def _account_facts(key: AccountKey, account: Account) -> dict[str, object]:
    return {
        "device": key.device,
        "stream": key.stream,
        "epoch": key.epoch,
        "of": key.of,
        "first": account.first,
        "highest": account.highest,
        "received": account.received,
        "duplicates": account.duplicates,
        "missing": [list(numbers) for numbers in account.missing],
        "declared": [list(numbers) for numbers in account.declared],
    }


def _change_line(facts: dict[str, object]) -> str:
    whose = f"{facts['device']}/{facts['stream']}{' events' if facts['of'] == 'events' else ''}"
    return f"{whose} missing {facts['missing']}, declared lost {facts['declared']}"


def _report(ledger: Ledger, out: TextIO, *, is_json: bool) -> None:
    for key, account in sorted(ledger.accounts.items()):
        facts = _account_facts(key, account)
        if is_json:
            _write(out, _json_line({"event": "account", **facts}))
            continue
        _write(
            out,
            f"{key}: #{account.first} to #{account.highest}, received {account.received}, "
            f"duplicates {account.duplicates}, declared lost {account.declared.total}, missing {account.missing.total}",
        )


def _did(event: EventMessage) -> str:
    """Return e.g. `car 57 cross gate forward`, `person 8 vanish yard after 4.2 s (lost)`."""
    place = event.line if event.line is not None else event.zone
    way = "" if event.direction is None else f" {event.direction}"
    after = "" if event.duration_s is None else f" after {event.duration_s:.1f} s"
    who = event.label or f"class {event.class_id}"
    return f"{who} {event.track_id} {event.kind} {place}{way}{after}{_because(event.reason)}"


def _fetched(message: PullMessage) -> str:
    if message.repository is None:
        return "fetches no releases any more"
    found = "not looked yet" if message.result is None else f"{message.result} {message.release or 'no release'}"
    return f"fetches {message.channel}-{message.ring} of {message.repository}: {found}{_because(message.reason)}"


def _counted(by_label: Mapping[str, int | None]) -> str:
    return ", ".join(f"{label} {count}" for label, count in by_label.items() if count is not None)


def _object(label: str | None, class_id: int, score: float) -> str:
    return f"{label or f'class {class_id}'} {score:.2f}"


def _clock(instant: str) -> str:
    """Return the time of day, milliseconds."""
    return instant[11:23]


def _because(reason: str | None) -> str:
    return "" if reason is None else f" ({reason})"


def _write(stream: TextIO, line: str) -> None:
    """Write one line; much of it may be the words of any client of the broker."""
    stream.write(cleaned(line) + "\n")
    stream.flush()

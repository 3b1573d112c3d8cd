"""Streams that a broker may still hold a state of: what an older pipeline had and this one has not is taken away."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from edge.reading import json_object, read_file
from edge.writing import write_whole

__all__ = ["ANNOUNCED_FILE", "NoStreamState", "removed_streams"]

ANNOUNCED_FILE = "announced.json"
_FORMAT = "edge.announced/1"
_MAX_BYTES = 65_536
# Removed ones are taken away again at each start, in case the broker was not there; so many are remembered.
_MOST_REMEMBERED = 256

StreamTopic: TypeAlias = Literal["state", "occupancy", "counts"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NoStreamState:
    """A `TopicMessage` without payload: the broker forgets what it keeps of a stream that is no more."""

    stream: str
    of: StreamTopic = "state"
    is_retained: bool = True
    expiry_s: int | None = None

    @property
    def topic(self) -> str:
        """Topic below the device's own level."""
        return f"streams/{self.stream}/{self.of}"

    @classmethod
    def all_of(cls, stream: str) -> Iterator[NoStreamState]:
        """Yield what has a broker forget all of a stream."""
        for topic in get_args(StreamTopic):
            yield cls(stream, topic)

    def encode(self) -> bytes:
        """Return nothing, which is what tells a broker to forget."""
        return b""


def removed_streams(state_dir: Path | None, streams: Sequence[str]) -> tuple[str, ...]:
    """Return the streams of earlier starts that are not among `streams`, and remember these as well.

    Without a directory, or where nothing can be read or kept, there are none: that is logged and no error.
    """
    if state_dir is None:
        return ()
    path = state_dir / ANNOUNCED_FILE
    removed = tuple(stream for stream in _read(path) if stream not in streams)
    try:
        write_whole(path, json.dumps({"format": _FORMAT, "streams": _newest([*removed, *streams])}).encode())
    except OSError as error:
        _log.warning("streams not remembered path=%s error=%s", path, error.strerror)
    return removed


def _newest(streams: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(streams))[-_MOST_REMEMBERED:]


def _read(path: Path) -> list[str]:
    try:
        kept = json_object(read_file(path, most_bytes=_MAX_BYTES))
        streams = kept["streams"]
        if kept["format"] != _FORMAT or not all(isinstance(stream, str) for stream in streams):
            raise ValueError(f"expected format {_FORMAT} with names of streams")
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("file of streams unusable path=%s error=%s: begun anew", path, error)
        return []
    return list(dict.fromkeys(streams))

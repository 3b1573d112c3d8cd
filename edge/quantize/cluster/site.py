"""What a worker does. Everything here is called by name on the worker, with plain values and with what `wire` packs.

A session is one command that somebody has typed. It has the models that it was given, and the tool of the job that it
is at; the next job's takes its place. A worker keeps two sessions at most, so that one whose end nobody told of is
forgotten.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge.engine.cores import use_at_most
from edge.media.images import MAX_FILE_BYTES, decode_image
from edge.model.file import ModelFile
from edge.quantize.cluster.binding import this_worker
from edge.quantize.cluster.likeness import likeness_here
from edge.quantize.cluster.wire import model_of, unpack
from edge.quantize.crew import CrewWork, Tool
from edge.quantize.stills import StillImage
from edge.reading import read_file

__all__ = ["Done", "Ended", "MissingImages", "Unprepared", "do_part", "end", "greet", "prepare"]

_MOST_SESSIONS = 2


@dataclass(frozen=True, slots=True)
class Done:
    """What was found, in order, and the name of the engine."""

    found: tuple[Any, ...]
    engine: str


@dataclass(frozen=True, slots=True)
class MissingImages:
    """Images that this worker does not see at their paths: their content has to be sent."""

    images: tuple[StillImage, ...]
    worker: str


@dataclass(frozen=True, slots=True)
class Unprepared:
    """This worker does not know the job, or does not know it any more."""

    worker: str


class Ended(Exception):  # noqa: N818 - nobody waits for what this ends
    """The session has ended meanwhile."""


@dataclass
class _Session:
    folder: Path
    models: dict[str, ModelFile] = field(default_factory=dict)
    job: int = -1
    work: CrewWork[Any, Any] | None = None
    tool: Tool[Any, Any] | None = None
    is_ended: bool = False
    changing: threading.Lock = field(default_factory=threading.Lock)  # job and tool
    working: threading.Lock = field(default_factory=threading.Lock)  # an engine takes one thread at a time

    def work_of(self, job: int) -> CrewWork[Any, Any] | None:
        """Return what the job is; None: it is not known."""
        with self.changing:
            return self.work if job == self.job else None

    def tool_of(self, job: int) -> Tool[Any, Any] | None:
        """Return what does the job, made when first asked for; None: it is not known."""
        with self.changing:
            if job != self.job or self.work is None:
                return None
            if self.tool is None:
                self.tool = self.work.open()
            return self.tool

    def drop(self, tool: Tool[Any, Any]) -> None:
        """Make another tool for the next part: this one has broken off, with inferences still running in it."""
        with self.changing:
            if self.tool is tool:
                self._free()

    def take(self, job: int, work: CrewWork[Any, Any]) -> None:
        """Go on to another job."""
        with self.working, self.changing:
            self._free()
            self.job, self.work = job, work

    def end(self) -> None:
        self.is_ended = True
        with self.working, self.changing:
            self._free()
            self.work = None

    def _free(self) -> None:
        if self.tool is not None:
            self.tool.close()
        self.tool = None


_sessions: OrderedDict[str, _Session] = OrderedDict()
_changing = threading.Lock()


def greet(kinds: Sequence[str]) -> dict[str, str]:
    """Return what this worker is (`likeness`), and beside that the name of its machine as `host`."""
    return {**likeness_here(kinds), "host": socket.gethostname()}


def prepare(session: str, folder: str, job: int, work: bytes, models: Mapping[str, bytes], cores: int) -> None:
    """Take in a job.

    Args:
        session: whose it is.
        folder: that paths start at.
        job: its number, larger than that of the one before.
        work: what is to be done, packed.
        models: those that the session has not given to this worker yet.
        cores: that this worker may use.
    """
    use_at_most(cores)
    mine, forgotten = _session_of(session, folder)
    for one in forgotten:
        one.end()
    for sha256, content in models.items():
        mine.models[sha256] = model_of(sha256, content)
    if job > mine.job:
        mine.take(job, unpack(work, mine.models))


def do_part(
    session: str, job: int, items: Sequence[Any], sent: Mapping[str, bytes]
) -> Done | MissingImages | Unprepared:
    """Do what the job says with `items`; `sent` is the content of images by its digest.

    Raises:
        EdgeError: what the tool raises.
        Ended: if the session ends meanwhile.
    """
    with _changing:
        mine = _sessions.get(session)
    work = None if mine is None else mine.work_of(job)
    if mine is None or work is None:
        return Unprepared(this_worker())
    with contextlib.nullcontext() if work.is_small else mine.working:
        tool = mine.tool_of(job)
        if tool is None:
            return Unprepared(this_worker())
        try:
            return _Part(mine, tool, sent).done(items)
        except BaseException:
            if not work.is_small:
                mine.drop(tool)
            raise


def end(session: str) -> None:
    """Stop what is being done for a session behind the image that it is at, and forget it."""
    with _changing:
        mine = _sessions.pop(session, None)
    if mine is not None:
        mine.is_ended = True  # what runs is seen off by the thread that runs it
        threading.Thread(target=mine.end, name="end of a session", daemon=True).start()


class _Part:
    def __init__(self, session: _Session, tool: Tool[Any, Any], sent: Mapping[str, bytes]) -> None:
        self._session = session
        self._tool = tool
        self._sent = sent
        self._contents: dict[Path, bytes] = {}

    def done(self, items: Sequence[Any]) -> Done | MissingImages:
        wanted = tuple(image for image in self._tool.images(items) if not self._sees(image))
        if wanted:
            return MissingImages(wanted, this_worker())
        found = tuple(self._tool.run(items, read=self._read, on_item=self._step))
        return Done(found, self._tool.name)

    def _sees(self, image: StillImage) -> bool:
        """Take the content that was sent, or what is at the path if it is that."""
        content = self._sent.get(image.sha256)
        if content is None:
            try:
                content = read_file(self._session.folder / image.path, most_bytes=MAX_FILE_BYTES, follows_links=True)
            except OSError:
                return False
        if hashlib.sha256(content).hexdigest() != image.sha256:
            return False
        self._contents[image.path] = content
        return True

    def _read(self, path: Path) -> NDArray[np.uint8]:
        return decode_image(path, self._contents.pop(path))

    def _step(self) -> None:
        if self._session.is_ended:
            raise Ended


def _session_of(name: str, folder: str) -> tuple[_Session, list[_Session]]:
    """Return a session, which may be a new one, and those that are forgotten for it."""
    with _changing:
        mine = _sessions.setdefault(name, _Session(folder=Path(folder)))
        _sessions.move_to_end(name)
        return mine, [_sessions.popitem(last=False)[1] for _ in range(len(_sessions) - _MOST_SESSIONS)]

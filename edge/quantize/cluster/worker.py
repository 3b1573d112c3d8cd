"""Runs on a worker, called there by name: one tool for each session, which is one command, of the job that it is at.

Also properties in which the machines of a cluster have to be equal.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import platform
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import edge
from edge.engine.cores import use_at_most
from edge.engine.kinds import facts_of_kind
from edge.errors import ConfigError, EdgeError
from edge.media.images import MAX_FILE_BYTES, decode_image
from edge.quantize.crew import Tool
from edge.quantize.stills import StillImage
from edge.reading import read_file
from edge.version import __version__

__all__ = ["Done", "Job", "Likeness", "do_part", "end", "properties_here"]

_CODE = ("edge-deploy", "its code", "Python")
_PROCESSOR = ("processor", "instructions", "limits on them")
_LISTED = 5
_OPENCV = ("opencv-python-headless", "opencv-python", "opencv-contrib-python-headless", "opencv-contrib-python")
_MODEL = ("vendor_id", "cpu family", "model", "model name", "CPU implementer", "CPU part", "CPU variant")
_VECTOR = ("sse", "ssse", "avx", "amx", "fma", "f16c", "gfni", "asimd", "sve", "i8mm", "bf16", "fp16", "sme")
_LIMITS = ("ONEDNN_", "DNNL_", "NPY_DISABLE_CPU", "NPY_ENABLE_CPU", "OPENCV_CPU_DISABLE", "OPENCV_IPP")


@functools.lru_cache
def properties_here(kinds: tuple[str, ...]) -> Mapping[str, str]:
    """Return the properties of this machine by name, and its own as `host`; `kinds` are of the engines."""
    names = ("numpy", "onnx", "msgspec", *_OPENCV)
    found = {name: one.version for name in names for one in metadata.distributions(name=name)}
    for kind in kinds:
        found |= facts_of_kind(kind).versions()
    files = sorted(Path(edge.__file__).parent.rglob("*.py"))
    code = b"".join(hashlib.sha256(f"{path.name}\n".encode() + path.read_bytes()).digest() for path in files)
    python = f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"
    own = (__version__, hashlib.sha256(code).hexdigest()[:12], python)
    return {**dict(zip(_CODE + _PROCESSOR, own + _processor(), strict=True)), **found, "host": socket.gethostname()}


def _processor() -> tuple[str, str, str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        text = ""
    known = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
    model = " ".join(known[name] for name in _MODEL if name in known) or platform.processor() or "unknown"
    instructions = known.get("flags", known.get("Features", "unknown")).split()
    limits = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith(_LIMITS))
    vector = " ".join(sorted(one for one in instructions if one.startswith(_VECTOR)))
    return f"{platform.machine()} {model}", vector, " ".join(limits) or "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """This machine, which others are held against; with `mixes` they may have other processors.

    All have to be equal, so that all make the same bytes: in versions, because arithmetic and formats change with them;
    in the code of edge-deploy, because a version does not show what was changed in it; in the processor and its
    instructions, because sums in another order differ in their last bits (docs/adr/0005).
    """

    kinds: tuple[str, ...]
    mixes: bool = False
    here: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of_this_machine(kinds: Sequence[str], *, mixes: bool = False) -> Likeness:
        return Likeness(kinds=tuple(kinds), mixes=mixes, here=properties_here(tuple(kinds)))

    def require(self, answers: Mapping[str, Any]) -> None:
        """Refuse who is not alike: `answers` are properties by name, or why there are none; a scheduler's code counts.
        Raises `ConfigError` that names up to five of them.
        """
        texts = [text for called, answer in answers.items() for text in self._refusals(called, answer)]
        if texts:
            more = [f"and {len(texts) - _LISTED} more"] if len(texts) > _LISTED else []
            hint = "install the very same on all machines, or take these out of the cluster; --mixed-cpus allows other "
            hint += "processors: last digits may differ then"
            raise ConfigError("\n".join([*texts[:_LISTED], *more]), hint=hint)

    def _refusals(self, called: str, answer: Any) -> list[str]:
        if isinstance(answer, BaseException):
            why = answer.problem if isinstance(answer, EdgeError) else f"{type(answer).__name__}: {answer}"
            return [f"{called} cannot take part: it has not this edge-deploy: {why}"]
        names = _CODE if called == "scheduler" else [one for one in {**self.here, **answer} if one != "host"]
        unlike = [
            _told(one, self.here.get(one, "none"), answer.get(one, "none"))
            for one in names
            if self.here.get(one) != answer.get(one) and not (self.mixes and one in _PROCESSOR)
        ]
        return [f"{called} on {answer['host']} cannot take part: {'; '.join(unlike)}"] if unlike else []


def _told(name: str, here: str, there: str) -> str:
    mine, theirs = set(here.split()), set(there.split())
    there, here = (" ".join(sorted(words)) or "no more" for words in (theirs - mine, mine - theirs))
    return f"{name} {there} there, {here} here"


_MOST_SESSIONS = 2  # the end of another one was never told


@dataclass(frozen=True, slots=True)
class Done:
    """Results of a part, in order, and the name of the engine."""

    found: tuple[Any, ...]
    engine: str


_tools: dict[str, tuple[int, Tool[Any, Any]]] = {}
_ended: set[str] = set()
_opening = threading.RLock()
_working = threading.Lock()  # an engine takes one thread at a time


@dataclass(frozen=True, slots=True)
class Job:
    """Work of a session, as it travels; relative paths of images begin at `folder`."""

    session: str
    number: int
    folder: Path
    is_small: bool
    likeness: Likeness


def do_part(
    job: Job, work: bytes, items: Sequence[Any], sent: Mapping[str, bytes], *, address: str, threads: int
) -> Done | tuple[StillImage, ...]:
    """Do the `work` of a job, pickled, with `items`; `sent` is contents of images by digest, `address` this worker.
    What is returned are its results, or the images that are not at their paths here: their content has to be sent.
    Raises `ConfigError` if this worker, which may have come late, is not like the machine of the command; EdgeError
    raised by the tool; RuntimeError if the session ends meanwhile, when nobody waits for the part.
    """
    job.likeness.require({f"worker {address}": properties_here(job.likeness.kinds)})
    use_at_most(threads)
    with contextlib.nullcontext() if job.is_small else _working:
        tool = _tool_of(job, work)
        contents = [(image, _content(job.folder, image, sent)) for image in tool.images(items)]
        if missing := tuple(image for image, content in contents if content is None):
            return missing
        of_path = {image.path: content for image, content in contents if content is not None}

        def on_item() -> None:
            if job.session in _ended:
                raise RuntimeError("the session has ended")

        try:
            found = tool.run(items, read=lambda path: decode_image(path, of_path.pop(path)), on_item=on_item)
            return Done(tuple(found), tool.name)
        except BaseException:
            if not job.is_small:  # inferences may still run in it: the next part makes another one
                _close(job.session)
            raise


def end(session: str) -> None:
    """End a session behind the image that it is at."""

    def close_when_idle() -> None:
        with _working:
            _close(session)

    _ended.add(session)
    threading.Thread(target=close_when_idle, name="end of a session", daemon=True).start()


def _tool_of(job: Job, work: bytes) -> Tool[Any, Any]:
    with _opening:
        if _tools.get(job.session, (-1, None))[0] != job.number:
            for session in [job.session, *list(_tools)[: 1 - _MOST_SESSIONS]]:
                _close(session)
            _tools[job.session] = job.number, pickle.loads(work).open()
        return _tools[job.session][1]


def _close(session: str) -> None:
    with _opening:
        _, tool = _tools.pop(session, (-1, None))
        if tool is not None:
            tool.close()


def _content(folder: Path, image: StillImage, sent: Mapping[str, bytes]) -> bytes | None:
    """Return the content that was sent, or the file at the path; None if it has another digest."""
    content = sent.get(image.sha256)
    if content is None:
        with contextlib.suppress(OSError):
            content = read_file(folder / image.path, most_bytes=MAX_FILE_BYTES, follows_links=True)
    is_it = content is not None and hashlib.sha256(content).hexdigest() == image.sha256
    return content if is_it else None

"""Takes out of a proof what is somebody's own: people, addresses, other machines, secrets, serial numbers."""

from __future__ import annotations

import getpass
import os
import pwd
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from edge.reading import read_file
from edge.roofline.proof import Proof, Step
from edge.untrusted import cleaned

__all__ = ["redacted"]

_LONGEST = 2000
# Each finds one kind; what it finds becomes its name. An address with a scheme goes whole, and before what is in it.
_PATTERNS = tuple(
    (re.compile(pattern, re.IGNORECASE), name)
    for pattern, name in (
        (r"\b(rtsps?|https?|mqtts?|ssh|tcp|tls)://[^\s'\"|]+", "ADDRESS"),
        (r"\b[\w.+-]+@[\w-]+(\.[\w-]+)+\b", "ADDRESS"),
        (r"\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b", "ADDRESS"),
        (r"(?<![\w:])([0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4}(?![\w:])", "ADDRESS"),
        (r"(?<![\w:])([0-9a-f]{1,4}:)*[0-9a-f]{0,4}::([0-9a-f]{1,4}:)*[0-9a-f]{1,4}(?![\w:])", "ADDRESS"),
        (r"\b(GPU-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "SERIAL"),
        (r"(?<=/home/)[^/\s'\"]+", "USER"),
        (r"\b(password|passwd|secret|token|api[_-]?key)(\s*[=:]\s*)\S+", "SECRET"),
    )
)
_SERIALS = (
    "proc/device-tree/serial-number",
    "sys/module/tegra_fuse/parameters/tegra_chip_uid",
    "sys/class/dmi/id/product_serial",
    "sys/class/dmi/id/board_serial",
    "sys/class/dmi/id/product_uuid",
    "etc/machine-id",
)
_SHORTEST_SERIAL, _SHORTEST_NAME = 6, 3
_OURS = ("root", "nobody", "edge-deploy", "edge-runtime", "edge-build", "edge-pull", "edge-software")
_FIRST_PERSON = 1000
_LOCAL = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback", "ip6-allnodes", "ip6-allrouters")


def redacted(proof: Proof, root: Path = Path("/")) -> Proof:
    """Return the proof without what is somebody's own; the name of its own machine stays."""
    names = [(re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])"), name) for word, name in _words(root, proof.host)]
    patterns = (*_PATTERNS, *names)

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            text = cleaned(value)[:_LONGEST]
            for pattern, name in patterns:
                text = pattern.sub(name, text)
            return text
        if isinstance(value, dict):
            return {clean(key): clean(inner) for key, inner in value.items()}
        return [clean(inner) for inner in value] if isinstance(value, (list, tuple)) else value

    plain = msgspec.to_builtins(proof.steps)
    return msgspec.structs.replace(proof, steps=msgspec.convert(clean(plain), type=tuple[Step, ...]))


def _words(root: Path, host: str) -> Iterator[tuple[str, str]]:
    """Yield each word that this machine has for people, other machines and itself, the longest first."""
    found = [*((word, "SERIAL") for word in _serials(root)), *((word, "USER") for word in _people())]
    found += [(word, "HOST") for word in _machines(root) if word not in (host, *_LOCAL)]
    yield from sorted(found, key=lambda one: -len(one[0]))


def _serials(root: Path) -> Iterable[str]:
    texts = [_text(root / path).strip("\0\n ") for path in _SERIALS]
    return {text for text in texts if len(text) >= _SHORTEST_SERIAL}


def _people() -> Iterable[str]:
    """Return the names of accounts of people, and of who is asking."""
    names = {one.pw_name for one in pwd.getpwall() if one.pw_uid >= _FIRST_PERSON}
    names |= {os.environ.get(key, "") for key in ("SUDO_USER", "LOGNAME", "USER")} | {getpass.getuser()}
    return {name for name in names if len(name) >= _SHORTEST_NAME and name not in _OURS}


def _machines(root: Path) -> Iterable[str]:
    """Return the names of machines that this one knows by its files, its own longer ones among them."""
    lines = (line.partition("#")[0].split()[1:] for line in _text(root / "etc/hosts").splitlines())
    return {name for words in lines for name in words if len(name) >= _SHORTEST_NAME}


def _text(path: Path) -> str:
    try:
        return read_file(path, follows_links=True).decode("utf-8", "replace")
    except OSError:
        return ""

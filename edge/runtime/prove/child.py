"""The process of one step: `child STEP FOLDER [as-service]`. Each row is a line of JSON on stdout, as it is found."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from edge.runtime.prove.engines import cuda, dla, forms
from edge.runtime.prove.kit import Rows, parts
from edge.runtime.prove.load import beside, load
from edge.runtime.prove.look import facts, nodes, unit
from edge.runtime.prove.video import video

__all__ = ["AS_SERVICE", "STEP_OF", "main"]

AS_SERVICE = "as-service"

STEP_OF: Mapping[str, Callable[[Path, bool], Rows]] = MappingProxyType(
    {
        "facts": lambda folder, brief: facts(),
        "nodes": lambda folder, brief: nodes(),
        "cuda": lambda folder, brief: cuda(is_brief=brief),
        "video": lambda folder, brief: video(is_brief=brief),
        "forms": lambda folder, brief: forms(folder),
        "beside": lambda folder, brief: beside(folder),
        "dla": lambda folder, brief: dla(folder),
        "load": lambda folder, brief: load(folder),
        "unit": lambda folder, brief: unit(folder),
    }
)
"""By name: what yields the rows of a step, given a folder of its own and whether it runs inside the sandbox."""


def main(name: str, folder: str, *more: str) -> None:
    """Do one step. Whatever libraries print goes to stderr."""
    rows = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for row in parts((name, lambda: STEP_OF[name](Path(folder), AS_SERVICE in more))):
        rows.write(msgspec.json.encode(row) + b"\n")
        rows.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

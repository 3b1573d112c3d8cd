"""How work travels: pickled, with models apart, which are large and travel once."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge.model.file import ModelFile
from edge.model.graph import graph_from_bytes

__all__ = ["Packed", "model_of", "pack", "unpack"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Work without its models, and these by their digests."""

    work: bytes
    models: Mapping[str, bytes]


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.models: dict[str, bytes] = {}

    def persistent_id(self, obj: Any) -> tuple[str, str] | None:
        if not isinstance(obj, ModelFile):
            return None
        self.models[obj.sha256] = obj.content
        return obj.sha256, str(obj.path)


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, models: Mapping[str, ModelFile]) -> None:
        super().__init__(file)
        self._models = models

    def persistent_load(self, pid: Any) -> ModelFile:
        return self._models[pid[0]]


def pack(work: object) -> Packed:
    """Return `work` ready to travel."""
    content = io.BytesIO()
    packer = _Packer(content)
    packer.dump(work)
    return Packed(work=content.getvalue(), models=packer.models)


def unpack(work: bytes, models: Mapping[str, ModelFile]) -> Any:
    """Return the work that was packed.

    Raises:
        KeyError: if a model of it is not among `models`.
    """
    return _Unpacker(io.BytesIO(work), models).load()


def model_of(sha256: str, content: bytes) -> ModelFile:
    """Return a model that has travelled; its path is that of where it came from, and is only named."""
    name = f"model {sha256[:12]}"
    return ModelFile(path=Path(name), sha256=sha256, content=content, graph=graph_from_bytes(content, name))

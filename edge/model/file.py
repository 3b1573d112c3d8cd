"""An ONNX file that is read and parsed once: its digest, what is inside, and the whole of it as bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edge.model.external import MOST_EXTERNAL_BYTES, external_locations
from edge.model.graph import Graph, graph_from_bytes, graph_of_proto, parsed, read_model_bytes

__all__ = ["ModelFile", "read_model_file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """A model file that was read."""

    path: Path
    sha256: str  # of the file, and of the files that it keeps its weights in, if any
    content: bytes  # the model in one piece; the bytes of the file, unless it keeps weights in others
    graph: Graph  # what is inside, checked

    def __reduce__(self) -> tuple[Callable[..., ModelFile], tuple[Path, str, bytes]]:
        """Travel as bytes, which are parsed again where they arrive."""
        return _arrived, (self.path, self.sha256, self.content)


def _arrived(path: Path, sha256: str, content: bytes) -> ModelFile:
    return ModelFile(path=path, sha256=sha256, content=content, graph=graph_from_bytes(content, str(path)))


def read_model_file(path: Path) -> ModelFile:
    """Return the model at `path`, with its external data. Raises `ModelError` if the file cannot be read, is empty, cut
    short, or not a valid ONNX model; MissingDependencyError if onnx is not installed.
    """
    content = read_model_bytes(path)
    proto = parsed(content, str(path))
    digest, others = hashlib.sha256(content), external_locations(proto)
    graph = graph_of_proto(proto, str(path), folder=path.parent)
    for location in others:
        digest.update(read_model_bytes(path.parent / location, MOST_EXTERNAL_BYTES))
    if others:
        content = graph.proto.SerializeToString()
    return ModelFile(path=path, sha256=digest.hexdigest(), content=content, graph=graph)

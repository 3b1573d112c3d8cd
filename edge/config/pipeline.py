"""A pipeline file as it was read: its settings, and where in the file each of them stands."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from edge.config.schema import PipelineConfig
from edge.document import Document, Location
from edge.errors import ConfigError

__all__ = ["Pipeline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A pipeline file that was read and found consistent."""

    config: PipelineConfig
    document: Document[ConfigError]

    @property
    def path(self) -> Path:
        """The file."""
        return self.document.path

    def error(self, location: Location, problem: str) -> ConfigError:
        """Return an error that points at a key of the file, for what only shows when the pipeline is built."""
        return self.document.error(location, problem)

    def resolve(self, text: str) -> Path:
        """Return a path that the file names: relative ones start at the file's own folder.

        Links are left alone: a release's `model.onnx` is a link to a file whose name says nothing.
        """
        return Path(os.path.abspath(self.path.parent / os.path.expanduser(text)))

"""What TensorRT has measured in earlier builds: a file per library, version and GPU, which makes the next one fast."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from edge.engine.tensorrt.binding import TensorRtLibrary
from edge.engine.tensorrt.device import TensorrtDevice
from edge.writing import write_whole

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import IBuilderConfig

__all__ = ["TimingCache"]

_log = logging.getLogger(__name__)


class TimingCache:
    """The cache of one library on one device in `folder`; None: nothing is kept. It never makes a build fail."""

    def __init__(self, folder: Path | None, library: TensorRtLibrary, device: TensorrtDevice) -> None:
        words = f"{library.name}-{library.version}-{device.name}-sm{device.capability}"
        name = re.sub(r"[^A-Za-z0-9.]+", "-", words)
        measures = not library.abilities.has_chosen_capability  # which builds for a GPU that it does not run on
        self._path = folder / f"{name}.timing" if folder is not None and measures else None

    def give_to(self, config: IBuilderConfig) -> bool:
        """Let a build start from what is kept; return whether anything was."""
        if self._path is None:
            return False
        content = self._read()
        if content and self._set(config, content):
            return True
        self._set(config, b"")
        return False

    def take_from(self, config: IBuilderConfig) -> None:
        """Keep what a build has measured."""
        cache = config.get_timing_cache()
        if self._path is None or cache is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, bytes(cache.serialize()))
        except OSError as error:
            _log.warning("timing cache is not kept path=%s reason=%s", self._path, error)

    def _read(self) -> bytes:
        assert self._path is not None
        try:
            return self._path.read_bytes()
        except OSError:
            return b""

    def _set(self, config: IBuilderConfig, content: bytes) -> bool:
        cache = config.create_timing_cache(content)
        # Never across devices or versions: a measurement of another GPU is a risk, says NVIDIA.
        return cache is not None and bool(config.set_timing_cache(cache, ignore_mismatch=False))

"""What cameras want of a machine: how large, how coded, how fast, and where that is known from."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Any

from edge.errors import ConfigError
from edge.types import ImageSize

__all__ = ["ASSUMED", "Origin", "StreamDemand", "Video", "video_from_text", "video_of"]

_TEXT = re.compile(r"(\d{2,5})x(\d{2,5})(?:@(\d+(?:\.\d+)?))?(?:/([A-Za-z0-9.]+))?")
_MOST_PX, _MOST_FPS = 16_384, 1000.0
_EXPECTED = "expected WIDTHxHEIGHT[@FPS][/CODEC], such as 1920x1080@30/h264"
_SAME_CODEC = {"hevc": "h265", "avc": "h264", "h.264": "h264", "h.265": "h265"}


class Origin(str, enum.Enum):
    """Where the facts of a camera come from."""

    SEEN = "seen"
    STATED = "stated"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Video:
    """What a camera sends; `codec` None: pictures that need no decoder, or it is not known."""

    size: ImageSize
    fps: float
    codec: str | None

    def __post_init__(self) -> None:
        if not 0 < self.fps <= _MOST_FPS:
            raise ValueError(f"expected more than 0 and at most {_MOST_FPS:g} frames per second, got {self.fps:g}")

    def __str__(self) -> str:
        return f"{self.size}@{self.fps:g}" + ("" if self.codec is None else f"/{self.codec}")

    @property
    def pixels(self) -> int:
        """Of a frame."""
        return self.size.width * self.size.height

    @property
    def pixels_per_s(self) -> float:
        """Pixels that are decoded."""
        return self.pixels * self.fps


ASSUMED = Video(size=ImageSize(width=1920, height=1080), fps=30.0, codec="h264")
"""Where nothing is known of a camera and nothing is stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDemand:
    """A stream of the pipeline.

    Attributes:
        wanted_fps: frames that are to be inferred, at most those that it sends.
        why: why its facts are assumed, or some of them; None where they are not.
    """

    id: str
    video: Video
    wanted_fps: float
    origin: Origin
    why: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; the keys are stable."""
        size = self.video.size
        return {
            "stream": self.id,
            "size": [size.width, size.height],
            "fps": self.video.fps,
            "codec": self.video.codec,
            "wanted_fps": self.wanted_fps,
            "origin": self.origin.value,
            "why": self.why,
        }


def video_from_text(text: str, *, base: Video = ASSUMED) -> Video:
    """Return what `1920x1080@30/h264` means; what it leaves out is as in `base`.

    Raises:
        ConfigError: if it means nothing.
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{text!r}: {_EXPECTED}")
    width, height, fps, codec = int(match[1]), int(match[2]), match[3], match[4]
    if not 16 <= min(width, height) <= max(width, height) <= _MOST_PX:
        raise ConfigError(f"{text!r}: expected sides of 16 to {_MOST_PX} px")
    size = ImageSize(width=width, height=height)
    try:
        return video_of(size, base.fps if fps is None else float(fps), base.codec if codec is None else codec)
    except ValueError as error:
        raise ConfigError(f"{text!r}: {error}") from None


def video_of(size: ImageSize, fps: float, codec: str | None) -> Video:
    """Return a video whose codec is called as in the tables; `raw` needs no decoder.

    Raises:
        ValueError: if `fps` is no rate.
    """
    name = None if codec is None else codec.lower()
    return Video(size=size, fps=fps, codec=None if name in (None, "raw") else _SAME_CODEC.get(name, name))

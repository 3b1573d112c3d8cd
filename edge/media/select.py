"""From a stream of the pipeline file to the source that reads it: the one place that knows all kinds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from edge.config.schema import StreamConfig
from edge.errors import ConfigError, MissingDependencyError
from edge.media.address import Address, parse_address, remedy_of
from edge.media.camera import Camera, StreamStatus
from edge.media.ffmpeg import binding as pyav
from edge.media.ffmpeg.source import PyavSource
from edge.media.gstreamer import binding as gst
from edge.media.gstreamer.build import NVMM_FACTORIES, SOFTWARE_FACTORIES, check_static_elements
from edge.media.gstreamer.source import GstSource
from edge.media.probe import ProbeWatch, is_there, why_unreached
from edge.media.rate import Cap
from edge.media.tunnel import require_trust
from edge.protocols import FrameSource
from edge.types import Preprocess, StreamId

__all__ = ["choose_decoder", "make_connection", "make_source", "require_decoder"]

_log = logging.getLogger(__name__)

_PYAV_SCHEMES = ("file", "rtsp", "rtsps", "http", "https")
_KEYFRAME_S = 12.0  # NVDEC waits for a key frame, and long groups of pictures are common
_FIRST_FRAME_S = 8.0


def make_source(
    stream: StreamConfig,
    *,
    preprocess: Preprocess,
    base_dir: Path,
    credential: Callable[[], tuple[str, str] | None] = lambda: None,
    on_status: Callable[[StreamStatus], None] | None = None,
    cap: Cap | None = None,
) -> FrameSource:
    """Return the source of a stream, with reconnection and `max_fps`; it is not open yet.

    Args:
        base_dir: folder of the pipeline file, which relative paths are relative to.
        credential: gives user and password of the camera; asked now, and for every connection.
        cap: of the stream, if it is live; may be changed at any time.

    Raises `ConfigError` if the address cannot be used, or not with the decoder that was asked for, or the credential;
    `MissingDependencyError` if nothing is installed that could read it.
    """
    login = CameraLogin(stream.id, credential)
    address = parse_address(stream.uri, base_dir=base_dir, credential=login.current(), tls=stream.tls)
    decoder = choose_decoder(stream, address)
    # Here and now: the threads that open their streams later would all do it at once, and report what is missing late.
    require_decoder(stream, address, decoder)

    def make() -> FrameSource:
        current = parse_address(stream.uri, base_dir=base_dir, credential=login.current(), tls=stream.tls)
        return make_connection(stream, current, decoder=decoder, preprocess=preprocess, cap=cap)

    def watch(is_refused: bool) -> ProbeWatch:
        return ProbeWatch(
            lambda: is_there(address, was_unknown=is_refused),
            name=stream.id,
            is_renewed=login.is_renewed,
            why=lambda: why_unreached(address),
        )

    return Camera(
        StreamId(stream.id),
        make,
        is_live=stream.realtime or not address.is_file_like,
        is_endless=not address.is_file_like,
        stall_s=stream.stall_s,
        first_frame_s=_KEYFRAME_S if decoder == "nvmm" else _FIRST_FRAME_S,
        watch=None if address.is_file_like else watch,
        on_status=on_status,
        max_fps=stream.max_fps,
        address=address.shown,
        remedy=remedy_of(address.scheme),
    )


def make_connection(
    stream: StreamConfig, address: Address, *, decoder: str, preprocess: Preprocess, cap: Cap | None = None
) -> GstSource | PyavSource:
    """Return one connection to a stream, by a `decoder` of `choose_decoder`: what breaks it, ends it."""
    if decoder == "pyav":
        return PyavSource(stream, address, preprocess=preprocess, cap=cap)
    return GstSource(stream, address, preprocess=preprocess, is_nvmm=decoder == "nvmm", cap=cap)


def require_decoder(stream: StreamConfig, address: Address, decoder: str) -> None:
    """Load what reads a stream. Raises `ConfigError` if the address has an option whose value cannot be used;
    `MissingDependencyError` if something is not installed.
    """
    require_trust(address)
    if decoder == "pyav":
        pyav.load()
    else:
        check_static_elements(stream, address, is_nvmm=decoder == "nvmm")


def choose_decoder(stream: StreamConfig, address: Address) -> str:
    """Return `nvmm`, `software` or `pyav`: what the stream asks for, or else the first that is installed.
    Raises `ConfigError` if PyAV was asked for a scheme that it does not read; `MissingDependencyError` if none is
    installed, or not the one that was asked for.
    """
    if stream.decoder == "pyav" and address.scheme not in _PYAV_SCHEMES:
        raise ConfigError(
            f"stream {stream.id}: decoder pyav reads {', '.join(_PYAV_SCHEMES)}, got {address.scheme}",
            hint="use decoder: software",
        )
    if stream.decoder == "nvmm" and not gst.has_factories(NVMM_FACTORIES):
        raise MissingDependencyError(
            f"stream {stream.id}: decoder nvmm needs GStreamer's {' and '.join(NVMM_FACTORIES)}", hint=gst.JETSON_HINT
        )
    if stream.decoder != "auto":
        return stream.decoder
    if gst.is_available():
        # The test pattern is drawn in system memory.
        if address.scheme != "test" and gst.has_factories(NVMM_FACTORIES):
            return "nvmm"
        if gst.has_factories(SOFTWARE_FACTORIES):
            return "software"
    if pyav.is_available() and address.scheme in _PYAV_SCHEMES:
        return "pyav"
    raise MissingDependencyError(
        f"stream {stream.id}: nothing is installed that reads {address.scheme}",
        hint="install GStreamer with its plugins (edge-runtime doctor tells which), or pip install edge-deploy[pyav]",
    )


class CameraLogin:
    """User and password of a camera, read again for every connection: passwords are changed while a service runs.

    Keeps what was read last where it cannot be read any more.

    `read`: gives user and password, or None for a camera without; called at once.

    Raises `ConfigError` if it cannot be read now.
    """

    def __init__(self, stream: str, read: Callable[[], tuple[str, str] | None]) -> None:
        self._stream = stream
        self._read = read
        self._used = read()

    def current(self) -> tuple[str, str] | None:
        try:
            self._used = self._read()
        except ConfigError as error:
            _log.warning("credential cannot be read, the last one is used stream=%s reason=%s", self._stream, error)
        return self._used

    def is_renewed(self) -> bool:
        """Return whether something else is there than was used last."""
        try:
            return self._read() != self._used
        except ConfigError:
            return False

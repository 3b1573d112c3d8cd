"""Puts a stream's pipeline together from launch texts: at once what is static, the decoder when its caps are known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from edge.config.schema import StreamConfig
from edge.errors import ConfigError, SourceError
from edge.media.address import Address
from edge.media.gstreamer.binding import caps_fields, load, parse_bin, parse_decoder, set_if_present
from edge.media.gstreamer.clean import CleanFrames
from edge.media.gstreamer.idle import is_idle
from edge.media.gstreamer.launch import joined, read_sections
from edge.media.gstreamer.sender_clock import SenderClock

__all__ = ["NVMM_FACTORIES", "SOFTWARE_FACTORIES", "PipelineBuilder", "check_static_elements", "is_live"]

NVMM_FACTORIES = ("nvv4l2decoder", "nvvidconv")
SOFTWARE_FACTORIES = ("parsebin", "h264parse", "avdec_h264", "capssetter", "videoscale", "videoconvert", "appsink")

_CODEC_SECTIONS = {
    "video/x-h264": "h264",
    "video/x-h265": "h265",
    "image/jpeg": "jpeg",
    "video/x-raw": "raw",
}
_DEPAY_SECTIONS = {"H264": "rtsp-h264", "H265": "rtsp-h265", "JPEG": "rtsp-jpeg"}
_RTP_CODECS = {"H264": "h264", "H265": "h265", "JPEG": "jpeg"}
_MODE_CODECS = {"raw": "video/x-raw", "jpeg": "image/jpeg", "h264": "video/x-h264"}


def is_live(stream: StreamConfig, address: Address) -> bool:
    """Return whether frames come at their own pace, so that the newest one wins."""
    return stream.realtime or not address.is_file_like


def check_static_elements(stream: StreamConfig, address: Address, *, is_nvmm: bool) -> None:
    """Put the pipeline together once, as far as that is possible before anything is read, and throw it away.

    Raises:
        ConfigError: if the address has an option whose value GStreamer does not know.
        MissingDependencyError: if GStreamer or an element of the pipeline is not installed.
    """
    PipelineBuilder(stream, address, is_nvmm=is_nvmm).disconnect()


class PipelineBuilder:
    """Makes one `Gst.Pipeline` for one stream.

    Attributes:
        pipeline: the pipeline, in state NULL.
        problem: what went wrong in a callback of a streaming thread, for the reader to raise.
        decoder: the element that decodes; None as long as the codec is not known, and for decodebin.
        codec: what the video is coded in, such as `h264`; None as long as it is not known.
        clean: tells which frames are clean; None as long as the codec is not known.
        sender_clock: of an RTSP camera, when it has taken its pictures.
        container_colour: colorimetry that the container states of H.264 or H.265, which the coded video overrules.
    """

    def __init__(self, stream: StreamConfig, address: Address, *, is_nvmm: bool) -> None:
        self._stream = stream
        self._address = address
        self._gst = load().gst
        self._sources = read_sections("sources")
        self._codecs = read_sections("nvmm" if is_nvmm else "software")
        self._is_linked = False
        self._has_other_media = False
        self._source: Any = None
        self._handlers: list[tuple[Any, int]] = []
        self._probes: list[tuple[Any, int]] = []
        self.problem: Exception | None = None
        self.decoder: Any = None
        self.clean: CleanFrames | None = None
        self.container_colour: str | None = None
        self.codec: str | None = None
        self.sender_clock = SenderClock(stream.id) if address.scheme in ("rtsp", "rtsps") else None
        self._is_nvmm = is_nvmm
        self.pipeline = self._gst.Pipeline.new(None)
        self._tail = self._add(parse_bin(self._tail_text(), has_pads=True))
        self._set_tail_properties()
        self._add_source()

    def has_given_up(self) -> bool:
        """Whether a file has been looked through and nothing was found that can be decoded."""
        return not self._is_linked and self._source is not None and is_idle(self._source)

    @property
    def has_only_other_media(self) -> bool:
        """Whether sound or the like has been found, and no video."""
        return self._has_other_media and not self._is_linked

    def no_video_error(self) -> SourceError:
        """Return the error for a stream without video."""
        is_final = self._address.is_file_like
        return SourceError(f"{self._address.shown}: there is no video in it", is_permanent=is_final)

    def disconnect(self) -> None:
        """Let go of the pipeline: signal handlers and probes hold us, and we hold it."""
        for element, handler in self._handlers:
            element.disconnect(handler)
        for pad, probe in self._probes:
            pad.remove_probe(probe)
        self._handlers, self._probes = [], []
        for one in (self.clean, self.sender_clock):
            if one is not None:
                one.disconnect()

    def _tail_text(self) -> str:
        is_paced_by_source = is_live(self._stream, self._address) and not self._address.is_file_like
        return joined(
            self._sources["decoded"],
            self._sources["rate"] if is_paced_by_source and self._stream.max_fps is not None else "",
            self._sources["newest" if is_paced_by_source else "waiting"],
            self._codecs["scale"],
        )

    def _set_tail_properties(self) -> None:
        sink = self.pipeline.get_by_name("sink")
        live = is_live(self._stream, self._address)
        sink.set_property("drop", live)
        sink.set_property("max-buffers", 1 if live else 2)
        # A file played at its own pace is paced here: in front of the decoder there is no clock.
        sink.set_property("sync", self._address.is_file_like and self._stream.realtime)
        if self._stream.max_fps is not None:
            set_if_present(self.pipeline.get_by_name("rate"), max_rate=self._coarse_rate(self._stream.max_fps))

    def _coarse_rate(self, max_fps: float) -> int:
        """Return whole frames per second, from which `edge.media.rate` picks exactly.

        Twice a fractional limit, since picking 7.5 out of 8 would leave one double gap in every fifteen frames; and
        never so few that the stall watchdog misses frames.
        """
        wanted = max_fps if float(max_fps).is_integer() else 2 * max_fps
        return max(math.ceil(wanted), math.ceil(3 / self._stream.stall_s))

    def _add_source(self) -> None:
        scheme = self._address.scheme
        match scheme:
            case "file":
                self._add_dynamic("file", location=self._address.location)
            case "http" | "https":
                section = "http-file" if self._address.is_file_like else "http"
                self._add_dynamic(section, location=self._address.location, **self._login("user-id", "user-pw"))
            case "rtsp" | "rtsps":
                login = self._login("user-id", "user-pw")
                self._add_dynamic("rtsp", location=self._address.location, latency=self._stream.latency_ms, **login)
                self._connect(self.pipeline.get_by_name("source"), "new-manager", self._on_new_manager)
            case "v4l2":
                self._add_static("v4l2", _MODE_CODECS[self._pixel_format()])
                self.pipeline.get_by_name("source").set_property("device", self._address.location)
            case "csi":
                self._add_static("csi", "video/x-raw", features="memory:NVMM", format="NV12")
                set_if_present(self.pipeline.get_by_name("source"), sensor_id=self._sensor())
            case "test":
                self._add_static("test", "video/x-raw", format="I420", colorimetry="bt601")
                self._set_pattern(self._address.options.get("pattern", "smpte"))
            case _:
                raise ConfigError(f"GStreamer source: no section for scheme {scheme!r}")

    def _add_dynamic(self, section: str, **properties: Any) -> None:
        """Add a source whose pads appear when it knows what it reads."""
        made = self._source = self._add(parse_bin(self._sources[section], has_pads=False))
        source = made.get_by_name("source")
        for name, value in properties.items():
            source.set_property(name, value)
        parser = made.get_by_name("parse") or source
        if section in ("file", "http-file"):
            self._connect(parser, "element-added", self._on_element_added)
        self._connect(parser, "pad-added", self._on_pad_added)
        self._connect(parser, "no-more-pads", self._on_no_more_pads)

    def _add_static(self, section: str, media_type: str, features: str | None = None, **fields: Any) -> None:
        made = self._add(parse_bin(self._sources[section], has_pads=True))
        caps = self._gst.Caps.new_empty_simple(media_type)
        defaults = {"width": 640, "height": 360, "fps": 30} if section == "test" else {}
        for name in ("width", "height"):
            if name in self._address.options or name in defaults:
                caps.set_value(name, self._address.number(name, defaults.get(name, 0)))
        if "fps" in self._address.options or "fps" in defaults:
            caps.set_value("framerate", self._gst.Fraction(self._address.number("fps", 30), 1))
        for name, value in fields.items():
            caps.set_value(name, value)
        if features is not None:
            caps.set_features(0, self._gst.CapsFeatures.new_single(features))
        made.get_by_name("mode").set_property("caps", caps)
        self.codec = _codec_of(media_type)
        self._link(made.get_static_pad("src"), self._codecs[_CODEC_SECTIONS[media_type]])

    def _on_pad_added(self, _element: Any, pad: Any) -> None:
        self._guarded(lambda: self._take_pad(pad))

    def _on_element_added(self, _bin: Any, element: Any) -> None:
        factory = element.get_factory()
        if factory is not None and factory.get_name() in ("h264parse", "h265parse"):
            pad = element.get_static_pad("sink")
            kind = self._gst.PadProbeType.EVENT_DOWNSTREAM
            self._probes.append((pad, pad.add_probe(kind, self._set_container_colour_apart)))

    def _set_container_colour_apart(self, pad: Any, info: Any) -> Any:
        """Parsers believe the container before the video; of full range, qtdemux (1.22) makes limited range."""
        event = info.get_event()
        if event.type == self._gst.EventType.CAPS and caps_fields(event.parse_caps()).has_field("colorimetry"):
            fields = caps_fields(event.parse_caps()).copy()
            self.container_colour = fields.get_string("colorimetry")
            fields.remove_field("colorimetry")
            caps = self._gst.Caps.new_empty()
            caps.append_structure(fields)
            pad.send_event(self._gst.Event.new_caps(caps))
            return self._gst.PadProbeReturn.DROP
        return self._gst.PadProbeReturn.OK

    def _on_new_manager(self, _source: Any, manager: Any) -> None:
        manager.set_property("do-lost", True)  # otherwise nothing behind the jitter buffer hears of a lost packet
        if self.sender_clock is not None:
            self.sender_clock.attach(manager)

    def _on_no_more_pads(self, _element: Any) -> None:
        if not self._is_linked and self.problem is None:
            self.problem = self.no_video_error()

    def _take_pad(self, pad: Any) -> None:
        """Decode the first video pad; audio and data pads stay unlinked, which demuxers allow."""
        caps = pad.get_current_caps() or pad.query_caps(None)
        fields = caps_fields(caps)
        name = fields.get_name()
        if self._is_linked:
            return
        if name == "application/x-rtp":
            if fields.get_string("media") == "video":
                if self.sender_clock is not None:
                    self.sender_clock.follow(pad)
                encoding = fields.get_string("encoding-name") or "?"
                self.codec = encoding.lower()
                self._link(pad, self._rtp_text(encoding))
        elif name.startswith(("video/", "image/")):
            self.codec = _codec_of(name)
            self._link(pad, self._codec_text(name))
        else:
            self._has_other_media = True
            # Data on a pad that nobody takes is sometimes an error and sometimes just the end.
            pad.add_probe(self._gst.PadProbeType.EVENT_DOWNSTREAM, self._on_event_of_other_media)

    def _on_event_of_other_media(self, _pad: Any, info: Any) -> Any:
        if info.get_event().type == self._gst.EventType.EOS:
            self._on_no_more_pads(None)
        return self._gst.PadProbeReturn.OK

    def _rtp_text(self, encoding: str) -> str:
        if encoding not in _DEPAY_SECTIONS:
            known = ", ".join(_DEPAY_SECTIONS)
            raise SourceError(f"{self._address.shown}: expected a video encoding of {known}, got {encoding}")
        return joined(self._sources[_DEPAY_SECTIONS[encoding]], self._codecs[_RTP_CODECS[encoding]])

    def _codec_text(self, media_type: str) -> str:
        return self._codecs[_CODEC_SECTIONS.get(media_type, "any")]

    def _link(self, pad: Any, description: str) -> None:
        is_late = description == self._codecs.get("any")
        decoder = self._add(parse_bin(description, has_pads=False) if is_late else parse_decoder(description))
        self._set_decoder_properties(decoder)
        element = decoder.get_by_name("decoder")
        if not is_late:
            self.decoder = element
            is_libav_h264 = element.get_factory().get_name() == "avdec_h264"
            self.clean = CleanFrames(decoder, self.pipeline.get_by_name("decoded"), has_marks=is_libav_h264)
        if is_late:
            self._connect(element, "pad-added", lambda _element, new: self._guarded(lambda: self._link_tail(new)))
        else:
            self._link_tail(decoder.get_static_pad("src"))
        decoder.sync_state_with_parent()
        if not pad.link_maybe_ghosting((element if is_late else decoder).get_static_pad("sink")):
            raise SourceError(f"{self._address.shown}: its decoder does not take {pad.query_caps(None).to_string()}")
        self._is_linked = True

    def _link_tail(self, pad: Any) -> None:
        sink = self._tail.get_static_pad("sink")
        if not sink.is_linked():
            pad.link_maybe_ghosting(sink)

    def _set_decoder_properties(self, decoder: Any) -> None:
        set_if_present(decoder.get_by_name("decoder"), max_errors=-1, enable_max_performance=True)
        # NVDEC may stay silent for ever on a stream that is joined between two key frames (GStreamer 1.20+).
        set_if_present(decoder.get_by_name("depay"), request_keyframe=True, wait_for_keyframe=self._is_nvmm)

    def _login(self, user_property: str, password_property: str) -> dict[str, str]:
        if self._address.credential is None:
            return {}
        return dict(zip((user_property, password_property), self._address.credential, strict=True))

    def _sensor(self) -> int:
        text = self._address.location or "0"
        if not text.isdecimal():
            raise ConfigError(f"csi address: expected the number of a sensor, e.g. csi://0, got {text!r}")
        return int(text)

    def _pixel_format(self) -> str:
        text = self._address.options.get("format", "raw")
        if text not in _MODE_CODECS:
            raise ConfigError(f"v4l2 address: format: expected one of {', '.join(_MODE_CODECS)}, got {text!r}")
        return text

    def _set_pattern(self, pattern: str) -> None:
        source = self.pipeline.get_by_name("source")
        self._gst.util_set_object_arg(source, "pattern", pattern)
        if source.get_property("pattern").value_nick != pattern:
            raise ConfigError(f"test address: pattern: GStreamer's videotestsrc has no {pattern!r}")

    def _add(self, element: Any) -> Any:
        self.pipeline.add(element)
        return element

    def _connect(self, element: Any, signal: str, callback: Callable[..., None]) -> None:
        self._handlers.append((element, element.connect(signal, callback)))

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # a C callback; the reader raises it
            self.problem = error


def _codec_of(media_type: str) -> str:
    """`video/x-h264`: h264."""
    return media_type.partition("/")[2].removeprefix("x-")

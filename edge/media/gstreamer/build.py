"""Puts a stream's pipeline together from launch texts: at once what is static, the decoder when its caps are known."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from edge.config.schema import StreamConfig
from edge.errors import ConfigError, SourceError
from edge.media.address import Address
from edge.media.flood import endless_error
from edge.media.gstreamer.binding import (
    caps_fields,
    has_factories,
    is_idle,
    joined,
    load,
    on_pad,
    parse_bin,
    parse_decoder,
    read_sections,
    set_if_present,
    shorten_tracks,
    weakly,
)
from edge.media.gstreamer.bus import SenderClock
from edge.media.gstreamer.clean import CleanFrames
from edge.media.gstreamer.tail import Pace, add_tail, is_burst, is_video
from edge.media.threads import Effort

__all__ = ["NVMM_FACTORIES", "SOFTWARE_FACTORIES", "PipelineBuilder", "check_static_elements"]

NVMM_FACTORIES = ("nvv4l2decoder", "nvvidconv")
SOFTWARE_FACTORIES = ("parsebin", "h264parse", "avdec_h264", "capssetter", "videoscale", "videoconvert", "appsink")

_CODEC_SECTIONS = {"video/x-h264": "h264", "video/x-h265": "h265", "image/jpeg": "jpeg", "video/x-raw": "raw"}
_DEPAY_SECTIONS = {"H264": "rtsp-h264", "H265": "rtsp-h265", "JPEG": "rtsp-jpeg"}
_RTP_CODECS = {"H264": "h264", "H265": "h265", "JPEG": "jpeg"}
_MOST_REQUESTS = 30  # before the first packet; a camera with a login takes six, one that sends on to itself all it gets
_HEAD_BYTES = 512
_MODE_CODECS = {"raw": "video/x-raw", "jpeg": "image/jpeg", "h264": "video/x-h264"}


def check_static_elements(stream: StreamConfig, address: Address, *, is_nvmm: bool) -> None:
    """Put the pipeline together once, as far as that is possible before anything is read, and throw it away.
    Raises `ConfigError` if the address has an option whose value GStreamer does not know; `MissingDependencyError` if
    GStreamer or an element of the pipeline is not installed.
    """
    PipelineBuilder(stream, address, is_nvmm=is_nvmm)


def _nvmm_sections() -> Mapping[str, str]:
    sections = read_sections("nvmm")
    return sections if has_factories(["nvjpegdec"]) else {**sections, "jpeg": sections["jpeg-software"]}


class PipelineBuilder:
    """Makes one `Gst.Pipeline` for one stream.

    Attributes:
        pipeline: the pipeline, in state NULL.
        problem: what went wrong in a callback of a streaming thread, for the reader to raise.
        decoder: the element that decodes; None as long as the codec is not known, and for decodebin.
        depay: the element that makes pictures of packets; None as long as it is not known, and without packets.
        codec: what the video is coded in, such as `h264`; None as long as it is not known.
        clean: tells which frames are clean; None as long as the codec is not known.
        sender_clock: of an RTSP camera, when it has taken its pictures.
        has_own_times: whether the times of its frames are others than those at which they come.
        is_empty: whether a web camera has ended its answer before it began: nothing is linked yet that hears of it.
        effort: of the thread that reads from the network.
        container_colour: colorimetry that the container states of H.264 or H.265, which the coded video overrules.
    """

    def __init__(self, stream: StreamConfig, address: Address, *, is_nvmm: bool) -> None:
        self._stream = stream
        self._address = address
        self._gst = load().gst
        self._sources = read_sections("sources")
        self._codecs = _nvmm_sections() if is_nvmm else read_sections("software")
        self._inside = threading.RLock()  # held by each callback as long as it is at work, and to end them all
        self._is_over = False
        self._pace: Pace | None = None
        self._has_bytes = False  # of a web camera
        self._is_claimed = False  # from the first moment on: making a decoder takes a quarter of a second
        self._track: int | None = None  # of an RTSP camera: the one that is set up
        self._locked: set[int] = set()  # and those that it encrypts by keys that rtspsrc does not read
        self._other_media: list[str] = []
        self._source: Any = None
        self.problem: Exception | None = None
        self.effort = Effort()
        self.has_own_times = self.is_empty = False
        self._requests = 0
        self.depay: Any = None
        self.clean: CleanFrames | None = None
        self.container_colour: str | None = None
        self.codec: str | None = None
        self.sender_clock = SenderClock(stream.id) if address.scheme in ("rtsp", "rtsps") else None
        self._is_nvmm = is_nvmm
        self.pipeline = self._gst.Pipeline.new(None)
        self._tail = add_tail(self.pipeline, stream, address, self._sources, self._codecs)
        self._add_source()

    def has_given_up(self) -> bool:
        """Whether a file has been looked through and nothing was found that can be decoded."""
        return not self._is_claimed and self._source is not None and is_idle(self._source)

    @property
    def has_only_other_media(self) -> bool:
        """Whether sound or the like has been found, and no video."""
        return bool(self._other_media) and not self._is_claimed

    def packet_number(self) -> int:
        """Return that of the last packet of an RTSP camera, -1 as long as none has come."""
        if self.depay is None:
            return -1
        is_known, number = self.depay.get_property("stats").get_uint("seqnum")
        return int(number) if is_known else -1

    def no_video_error(self) -> SourceError:
        problem = f"{self._address.shown}: there is no video in it"
        if self._other_media:
            problem += f" that we read, only {', '.join(self._other_media)}"
        hint = "give the address of the camera's video"
        if self._locked:
            hint = "have the camera send its video without SRTP; of UniFi Protect: leave ?enableSrtp out of the address"
        return SourceError(problem, hint=hint, is_permanent=self._address.is_file_like)

    def lead_to(self, address: Address) -> None:
        """Read from there; before the pipeline is started."""
        self._set_source(location=address.with_login if address.scheme == "http" else address.location)

    def end_callbacks(self) -> None:
        """Wait for the callback that is at work, and let no other begin.

        To be called before the pipeline is stopped: a callback that links pads waits for locks that a pipeline holds
        while it stops, and that waits for the thread which the callback is in.
        """
        with self._inside:
            self._is_over = True

    def _add_source(self) -> None:
        scheme = self._address.scheme
        match scheme:
            case "file":
                self._add_dynamic("file", location=self._address.location)
            case "http" | "https" if self._address.is_file_like:
                login = self._login()
                self._add_dynamic("http-file", location=self._address.location, **login)
            case "http" | "https":
                self._add_web()
                self._set_source(timeout=math.ceil(max(5.0, self._stream.stall_s + 1.0)))
                self._set_source(location=self._address.with_login, **self._login())
            case "rtsp" | "rtsps":
                login = self._login()
                self._add_dynamic("rtsp", location=self._address.location, latency=self._stream.latency_ms, **login)
                source = self.pipeline.get_by_name("source")
                source.connect("before-send", weakly(self._on_request, otherwise=True))
                self._connect(source, "new-manager", self._on_new_manager)
                self._connect(source, "on-sdp", self._on_description)
                self._connect(source, "select-stream", self._on_select_stream)
                if self._gst.version() < (1, 22):
                    shorten_tracks(source)
            case "v4l2":
                self._add_static("v4l2", _MODE_CODECS[self._pixel_format()])
                self._set_source(device=self._address.location)
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
        self._set_source(**properties)
        parser = made.get_by_name("parse") or made.get_by_name("source")
        self._follow(parser)

    def _on_request(self, *_: Any) -> bool:
        """Called in the thread that reads. The request, of a namespace that is not loaded here, is let on by True."""
        self.effort.begin()
        self._requests += 1
        if self._requests > _MOST_REQUESTS and self.depay is None and self.problem is None:
            self.problem = endless_error(self._address)
        return True

    def _add_web(self) -> None:
        """Add a web camera: what it sends is known when it comes."""
        pad = self._add(parse_bin(self._sources["http"], has_pads=True)).get_static_pad("src")
        parse_bin(joined(self._sources["http-jpeg"], self._codecs["jpeg"]), has_pads=False)  # most need no more
        kinds = self._gst.PadProbeType
        # The first thing that a source's thread does is an event.
        on_pad(pad, kinds.EVENT_DOWNSTREAM, self._on_web_event)
        pad.add_probe(kinds.BUFFER, self._guarded(self._on_first_bytes, otherwise=self._gst.PadProbeReturn.DROP))

    def _on_web_event(self, _pad: Any, info: Any) -> Any:
        self.effort.begin()
        self.is_empty |= info.get_event().type == self._gst.EventType.EOS and not self._has_bytes
        return self._gst.PadProbeReturn.OK

    def _on_first_bytes(self, pad: Any, info: Any) -> Any:
        self._has_bytes = True
        head = info.get_buffer().extract_dup(0, _HEAD_BYTES)
        if is_video(head):
            self.has_own_times = True
            self._pace = Pace(self.pipeline) if is_burst(pad, head) else None
            made = self._add(parse_bin(self._sources["http-video"], has_pads=False))
            parser = made.get_by_name("parse")
            self._follow(parser)
            made.sync_state_with_parent()
            pad.link_maybe_ghosting(parser.get_static_pad("sink"))
        else:
            self._is_claimed, self.codec = True, "jpeg"
            self._link(pad, joined(self._sources["http-jpeg"], self._codecs["jpeg"]))
        return self._gst.PadProbeReturn.REMOVE

    def _follow(self, parser: Any) -> None:
        self._connect(parser, "element-added", self._on_element_added)
        self._connect(parser, "pad-added", self._take_pad)
        self._connect(parser, "no-more-pads", self._on_no_more_pads)

    def _set_source(self, **properties: Any) -> None:
        source = self.pipeline.get_by_name("source")
        for name, value in properties.items():
            source.set_property(name, value)

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

    def _on_element_added(self, _bin: Any, element: Any) -> None:
        factory = element.get_factory()
        if factory is not None and factory.get_name() in ("h264parse", "h265parse"):
            pad = element.get_static_pad("sink")
            on_pad(pad, self._gst.PadProbeType.EVENT_DOWNSTREAM, self._set_container_colour_apart)

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

    def _on_description(self, _source: Any, session: Any) -> None:
        """Find the tracks that are encrypted by keys of `a=crypto` (RFC 4568); rtspsrc knows those of MIKEY."""
        for number, media in enumerate(map(session.get_media, range(session.medias_len()))):
            knows_key = any(one.get_attribute_val("key-mgmt") for one in (media, session))
            if media.get_proto().startswith("RTP/SAVP") and not knows_key:
                self._locked.add(number)

    def _on_select_stream(self, _source: Any, number: int, caps: Any) -> bool:
        """Set up the first video that we read, and nothing else: no sound, no second video, no metadata."""
        fields = caps_fields(caps)
        media, encoding = fields.get_string("media") or "?", fields.get_string("encoding-name") or "?"
        if media != "video" or encoding not in _DEPAY_SECTIONS or number in self._locked:
            self._other_media.append(f"{media} {encoding}{', encrypted (SRTP)' if number in self._locked else ''}")
        elif self._track is None:
            self._track = number
        self._is_claimed = self._track is not None
        return number == self._track

    def _on_no_more_pads(self, _element: Any) -> None:
        if not self._is_claimed and self.problem is None:
            self.problem = self.no_video_error()

    def _take_pad(self, _element: Any, pad: Any) -> None:
        """Decode the first video pad; audio and data pads stay unlinked, which demuxers allow."""
        fields = caps_fields(pad.get_current_caps() or pad.query_caps(None))
        name = fields.get_name()
        if name == "application/x-rtp":
            if self.sender_clock is not None:
                self.sender_clock.follow(pad)
            encoding = fields.get_string("encoding-name")
            self.codec = encoding.lower()
            self._link(pad, joined(self._sources[_DEPAY_SECTIONS[encoding]], self._codecs[_RTP_CODECS[encoding]]))
        elif not name.startswith(("video/", "image/")):
            self._other_media.append(name)
            # Data on an unlinked pad is sometimes an error and sometimes just the end.
            on_pad(pad, self._gst.PadProbeType.EVENT_DOWNSTREAM, self._on_event_of_other_media)
        elif not self._is_claimed:
            self._is_claimed = True
            self.codec = _codec_of(name)
            self._link(pad, self._codecs[_CODEC_SECTIONS.get(name, "any")])

    def _on_event_of_other_media(self, _pad: Any, info: Any) -> Any:
        if info.get_event().type == self._gst.EventType.EOS:
            self._guarded(self._on_no_more_pads)(None)
        return self._gst.PadProbeReturn.OK

    def _link(self, pad: Any, description: str) -> None:
        is_late = description == self._codecs.get("any")
        decoder = self._add(parse_bin(description, has_pads=False) if is_late else parse_decoder(description))
        self._set_decoder_properties(decoder)
        element = decoder.get_by_name("decoder")
        self.depay = decoder.get_by_name("depay")
        if not is_late:
            is_libav_h264 = element.get_factory().get_name() == "avdec_h264"
            self.clean = CleanFrames(decoder, self.pipeline.get_by_name("decoded"), has_marks=is_libav_h264)
        if is_late:
            self._connect(element, "pad-added", self._on_decoded_pad)
        else:
            self._link_tail(decoder.get_static_pad("src"))
        decoder.sync_state_with_parent()
        if not pad.link_maybe_ghosting((element if is_late else decoder).get_static_pad("sink")):
            raise SourceError(f"{self._address.shown}: its decoder does not take {pad.query_caps(None).to_string()}")

    def _on_decoded_pad(self, _element: Any, pad: Any) -> None:
        self._link_tail(pad)

    def _link_tail(self, pad: Any) -> None:
        sink = self._tail.get_static_pad("sink")
        if not sink.is_linked():
            pad.link_maybe_ghosting(sink)

    def _set_decoder_properties(self, decoder: Any) -> None:
        set_if_present(decoder.get_by_name("decoder"), max_errors=-1, enable_max_performance=True)
        # NVDEC may stay silent for ever on a stream that is joined between two key frames (GStreamer 1.20+).
        set_if_present(decoder.get_by_name("depay"), request_keyframe=True, wait_for_keyframe=self._is_nvmm)

    def _login(self) -> dict[str, str]:
        return dict(zip(("user-id", "user-pw"), self._address.credential or (), strict=False))

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

    def _connect(self, element: Any, signal: str, callback: Callable[..., Any]) -> None:
        element.connect(signal, self._guarded(callback))

    def _guarded(self, callback: Callable[..., Any], *, otherwise: Any = None) -> Callable[..., Any]:
        """Return what does as a signal asks for, in whatever thread that comes; nothing any more once all is to end.

        `otherwise` is what it returns where it does nothing, or fails.
        """
        myself, held = weakref.ref(self), weakly(callback)

        def call(*arguments: Any) -> Any:
            builder = myself()
            if builder is None:
                return otherwise
            with builder._inside:
                try:
                    return otherwise if builder._is_over else held(*arguments)
                except Exception as error:  # a C callback; the reader raises it
                    builder.problem = error
                    return otherwise

        return call


def _codec_of(media_type: str) -> str:
    return media_type.partition("/")[2].removeprefix("x-")

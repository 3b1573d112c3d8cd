"""RTSP cameras with the manners that people report, as launch texts for `RtspMount`."""

from dataclasses import dataclass

from tests.support.rtsp import UNHEARD, with_sound

_VIDEO = "videotestsrc is-live=true pattern=smpte ! video/x-raw,format={fmt},width={w},height={h},framerate={fps} ! "
_H264 = "x264enc tune=zerolatency speed-preset=ultrafast bitrate=500 key-int-max={k} ! video/x-h264,profile={p} ! "
# One thread and no looking ahead: the first picture comes half a second sooner, also of a busy machine.
_H265_SOON = "pools=none:frame-threads=1:rc-lookahead"
_H265 = 'x265enc speed-preset=ultrafast bitrate=500 key-int-max=15 option-string="{x}" ! '
_DESCRIBED = (
    "capssetter replace=true caps=application/x-rtp,media=(string){media},clock-rate={rate},payload={pt},"
    f"encoding-name=(string){{encoding}}{{more}} ! {UNHEARD} name=pay{{n}}"
)
_PAY = "rtp{codec}pay name=pay{n} pt={pt} config-interval={c}"


@dataclass(frozen=True, slots=True)
class RtspCamera:
    """What is launched, and what is to be seen of it."""

    launch: str
    size: tuple[int, int] = (320, 180)
    stall_s: float = 3.0
    frames: int = 5
    login: str = ""  # basic or digest
    refuses: tuple[int, ...] = ()  # tracks that nobody may set up


def _raw(fps: str = "15/1", fmt: str = "I420", w: int = 320, h: int = 180) -> str:
    return _VIDEO.format(fmt=fmt, w=w, h=h, fps=fps)


def _h264(fps: str = "15/1", *, n=0, pt=96, k=15, p="baseline", c=1, **raw) -> str:
    return _raw(fps, **raw) + _H264.format(k=k, p=p) + _PAY.format(codec="h264", n=n, pt=pt, c=c)


def _unread(track: str, n: int) -> str:
    return f"{track.replace(f' name=pay{n}', '')} ! {UNHEARD} name=pay{n}"


def _h265(x: str, fmt: str = "I420") -> str:
    return _raw(fmt=fmt) + _H265.format(x=x) + _PAY.format(codec="h265", n=0, pt=96, c=1)


def _in_band_only() -> str:
    """Take the parameter sets out of what the description says."""
    one_slice = _h264(c=-1).replace("x264enc", "x264enc sliced-threads=false").replace(" name=pay0", "")
    more = ",packetization-mode=(string)1"
    return f"{one_slice} ! {_DESCRIBED.format(n=0, media='video', rate=90000, pt=96, encoding='H264', more=more)}"


def _onvif_metadata(n: int) -> str:
    """A track that is described as ONVIF's analytics; what its packets hold is not for us."""
    payload = "audiotestsrc is-live=true ! audio/x-raw,rate=8000,channels=1 ! mulawenc ! rtppcmupay pt=107"
    described = _DESCRIBED.format(n=n, media="application", rate=90000, pt=107, encoding="VND.ONVIF.METADATA", more="")
    return f"{payload} ! {described}"


def _backchannel(n: int) -> str:
    """A track for sound towards the camera, as ONVIF Profile T describes it: only who asks for it may set it up."""
    sound = "audiotestsrc is-live=true ! audio/x-raw,rate=8000,channels=1 ! mulawenc ! rtppcmupay pt=0"
    more = ',a-sendonly=(string)\\"\\"'
    return f"{sound} ! {_DESCRIBED.format(n=n, media='audio', rate=8000, pt=0, encoding='PCMU', more=more)}"


def _slow(fps: str, period_s: float) -> RtspCamera:
    return RtspCamera(_h264(fps, k=1), stall_s=max(3.0, 3 * period_s), frames=2)


_PLAIN = _h264()
RTSP_CAMERAS = {
    "plain": RtspCamera(_PLAIN),
    "two videos": RtspCamera(f"{_h264(w=640, h=360)} {_unread(_h264(n=1, pt=98), 1)}", size=(640, 360)),
    "a video that nobody reads, then H.264": RtspCamera(
        f"{_unread(f'{_raw()}avenc_mpeg4 ! rtpmp4vpay name=pay0 pt=97', 0)} {_h264(n=1)}"
    ),
    "HEVC with B-frames": RtspCamera(_h265(f"bframes=3:b-adapt=0:{_H265_SOON}=4")),
    "HEVC of 10 bits": RtspCamera(_h265(f"bframes=0:{_H265_SOON}=0", "I420_10LE")),
    "H.264 4:2:2": RtspCamera(_h264(p="high-4:2:2", fmt="Y42B")),
    "a key frame in ten seconds": RtspCamera(_h264(k=150)),
    "parameter sets in its description only": RtspCamera(_h264(k=15, c=0)),
    "parameter sets in band only": RtspCamera(_in_band_only()),
    "parameter sets before each slice": RtspCamera(_h264(c=-1).replace("x264enc", "x264enc threads=2")),
    "no timing in its parameter sets": RtspCamera(_h264().replace("x264enc", "x264enc insert-vui=false")),
    "ONVIF metadata before": RtspCamera(f"{_onvif_metadata(0)} {_h264(n=1)}"),
    "ONVIF metadata behind": RtspCamera(f"{_PLAIN} {_onvif_metadata(1)}"),
    "ONVIF backchannel before": RtspCamera(f"{_backchannel(0)} {_h264(n=1)}", refuses=(0,)),
    "ONVIF backchannel behind": RtspCamera(f"{_PLAIN} {_backchannel(1)}", refuses=(1,)),
    "MJPEG": RtspCamera(_raw(h=176) + "jpegenc ! rtpjpegpay name=pay0 pt=26", size=(320, 176)),
    "1 fps": _slow("1/1", 1.0),
    "0.5 fps": _slow("1/2", 2.0),
    "0.2 fps": _slow("1/5", 5.0),
    "basic login": RtspCamera(_PLAIN, login="basic"),
    "digest login": RtspCamera(_PLAIN, login="digest"),
} | {
    f"{sound} {'before' if is_first else 'behind'}": RtspCamera(
        with_sound("", sound, is_first=is_first, video=_h264(n=int(is_first)))
    )
    for sound in ("aac", "pcmu", "pcma", "opus")
    for is_first in (False, True)
}
REFUSED = {
    "sound only": (
        "audiotestsrc is-live=true ! audio/x-raw,rate=8000,channels=1 ! mulawenc ! rtppcmupay name=pay0 pt=0"
    ),
    "MPEG-4 only": _raw() + "avenc_mpeg4 ! rtpmp4vpay name=pay0 pt=97",
}

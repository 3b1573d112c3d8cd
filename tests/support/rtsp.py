"""A real RTSP server in a process of its own, to be killed, frozen and started again.

with RtspServer({"/east": RtspMount(clip, "h264")}) as server:
    server.url("/east"); server.kill(); server.start(); server.freeze(); server.thaw()
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

if __name__ != "__main__":  # the server's own process needs no more than GStreamer
    import pytest

    from edge.errors import MissingDependencyError
    from edge.media.gstreamer import binding
    from tests.support.ports import free_port

_ELEMENTARY = (
    "appsrc name=file is-live=true format=time caps=video/x-{codec},stream-format=byte-stream,alignment=au "
    "! {codec}parse ! rtp{codec}pay name=pay0 pt=96 config-interval=1"
)
# The end of a track that nobody may set up. Without it the server's media is in error as soon as one leaves it out, and
# refuses the next reader; no camera that people own does so.
UNHEARD = "errorignore ignore-notlinked=true convert-to=ok"
_SOUNDS = {
    "aac": "audio/x-raw,rate=16000,channels=1 ! avenc_aac ! rtpmp4gpay pt=97",
    "pcmu": "audio/x-raw,rate=8000,channels=1 ! mulawenc ! rtppcmupay pt=0",
    "pcma": "audio/x-raw,rate=8000,channels=1 ! alawenc ! rtppcmapay pt=8",
    "opus": "audio/x-raw,rate=48000,channels=1 ! opusenc ! rtpopuspay pt=97",
}
_ANYBODY = "anybody"
_CHAINS = {
    "h264": _ELEMENTARY.format(codec="h264"),
    "h265": _ELEMENTARY.format(codec="h265"),
    "jpeg": "videotestsrc is-live=true ! video/x-raw,format=I420,width=320,height=176,framerate=30/1 ! jpegenc "
    "! rtpjpegpay name=pay0 pt=26",
}


@dataclass(frozen=True, slots=True)
class RtspMount:
    """What is served at a path: an elementary stream for h264 and h265, nothing for jpeg; losses are each time.

    With `launch` that is served, and repeats the clip where it has an appsrc named `file`.
    """

    clip: str = ""
    codec: str = ""
    login: tuple[str, str] | None = None
    is_digest: bool = False
    launch: str = ""
    loses: tuple[int, ...] = ()  # pictures whose packets never leave
    tears: tuple[int, ...] = ()  # pictures whose last packet never leaves
    fps: int = 30
    refuses: tuple[int, ...] = ()  # tracks that nobody may set up
    is_shared: bool = True  # a shared one is refused to who comes while the last one goes


def with_sound(codec: str, sound: str, *, is_first: bool = False, video: str = "") -> str:
    """Return what to launch for a camera that has sound, before its video or behind it."""
    audio = f"audiotestsrc is-live=true wave=silence ! {_SOUNDS[sound]} ! {UNHEARD} name=pay{int(not is_first)}"
    video = video or _CHAINS[codec].replace("name=pay0", f"name=pay{int(is_first)}")
    return f"{audio} {video}" if is_first else f"{video} {audio}"


class RtspServer:
    """A server on a free port, of the loopback unless told otherwise; it keeps its port over kill and start.

    With `tls`, the files of a certificate and its key, it speaks nothing else.
    """

    def __init__(
        self, mounts: dict[str, RtspMount], *, host: str = "127.0.0.1", tls: tuple[Path, Path] | None = None
    ) -> None:
        self._mounts, self._host, self.tls = mounts, host, tls
        self._process: subprocess.Popen[str] | None = None
        self.port = free_port()

    def __enter__(self) -> RtspServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def url(self, path: str) -> str:
        return f"rtsp{'s' if self.tls else ''}://{self._host}:{self.port}{path}"

    def start(self, others: dict[str, RtspMount] | None = None) -> None:
        """Begin to serve; `others` take the place of what was served before."""
        self._mounts = self._mounts if others is None else others
        mounts = json.dumps({path: asdict(mount) for path, mount in self._mounts.items()})
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), self._host, str(self.port), mounts, *map(str, self.tls or ())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == "ready"

    def kill(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None

    def mount(self, path: str, mount: RtspMount) -> None:
        self._mounts = {**self._mounts, path: mount}
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({path: asdict(mount)}) + "\n")
        self._process.stdin.flush()

    def freeze(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)


def require_gstreamer(*factories: str, server: bool = False) -> None:
    """Skip, naming what is missing; in CI that is a failure."""
    try:
        missing = " ".join(name for name in factories if not binding.has_factories([name]))
        if server:
            import gi

            gi.require_version("GstRtspServer", "1.0")
    except (MissingDependencyError, ValueError) as error:
        missing = str(error)
    if missing and os.environ.get("CI"):
        pytest.fail(f"missing in CI: {missing}")
    if missing:
        pytest.skip(f"needs GStreamer{' with its RTSP server' if server else ''}: {missing}")


def _serve(host: str, port: str, mounts: dict[str, dict], *tls: str) -> None:
    import gi

    gi.require_version("Gst", "1.0")
    gi.require_version("GstRtspServer", "1.0")
    from gi.repository import GLib, Gst, GstRtspServer

    Gst.init(None)
    server = GstRtspServer.RTSPServer()
    server.set_address(host)
    server.set_service(port)
    _mount_all(GstRtspServer, server, mounts, _encrypting(GstRtspServer, *tls, mounts=mounts) if tls else None)
    server.attach(None)
    print("ready", flush=True)

    def on_line(channel, _condition) -> bool:
        line = channel.readline()
        if line:
            _mount_all(GstRtspServer, server, json.loads(line))
        return bool(line)

    GLib.io_add_watch(sys.stdin, GLib.PRIORITY_DEFAULT, GLib.IOCondition.IN | GLib.IOCondition.HUP, on_line)
    GLib.MainLoop().run()


def _encrypting(rtsp, certificate: str, key: str, *, mounts: dict[str, dict]):
    from gi.repository import Gio

    auth, token = rtsp.RTSPAuth(), rtsp.RTSPToken()
    token.set_string("media.factory.role", _ANYBODY)
    auth.set_tls_certificate(Gio.TlsCertificate.new_from_files(certificate, key))
    if not any(mount["login"] for mount in mounts.values()):
        auth.set_default_token(token)
    return auth


def _mount_all(rtsp, server, mounts: dict[str, dict], auth=None) -> None:
    for path, mount in mounts.items():
        factory = rtsp.RTSPMediaFactory()
        factory.set_launch(f"( {mount['launch'] or _CHAINS[mount['codec']]} )")
        factory.set_latency(50)
        factory.set_shared(mount["is_shared"])
        factory.connect("media-configure", _feed, mount["clip"], mount["loses"], mount["tears"], mount["fps"])
        if mount["login"]:
            auth = auth or rtsp.RTSPAuth()
            _protect(rtsp, auth, factory, *mount["login"], is_digest=mount["is_digest"])
        elif auth is not None:
            factory.add_role_from_structure(_role(_ANYBODY))
        server.get_mount_points().add_factory(path, factory)
        if mount["refuses"]:
            refused = tuple(f"{path}/stream={track}" for track in mount["refuses"])
            server.connect("client-connected", _refuse, refused)
    if auth is not None:
        server.set_auth(auth)


def _refuse(_server, client, tracks: tuple[str, ...]) -> None:
    from gi.repository import GstRtsp

    codes = GstRtsp.RTSPStatusCode

    def on_setup(_client, context):
        return codes.OPTION_NOT_SUPPORTED if context.uri.abspath.endswith(tracks) else codes.OK

    client.connect("pre-setup-request", on_setup)


def _feed(_factory, media, clip: str, loses: list[int], tears: list[int], fps: int) -> None:
    """Repeat the clip for ever, with times that never jump: the server's sink keeps the pace."""
    from gi.repository import Gst

    source = media.get_element().get_by_name("file")
    if source is None:
        return
    import av

    with av.open(clip) as container:
        pictures = [bytes(packet) for packet in container.demux(video=0) if packet.size]
    count = 0

    def push(_source, _length: int) -> None:
        nonlocal count
        buffer = Gst.Buffer.new_wrapped(pictures[count % len(pictures)])
        buffer.pts = buffer.dts = count * Gst.SECOND // fps
        buffer.duration = Gst.SECOND // fps
        count += 1
        source.emit("push-buffer", buffer)

    source.connect("need-data", push)
    if loses or tears:
        _lose(media.get_element().get_by_name("pay0").get_static_pad("src"), len(pictures), loses, tears, fps)


def _lose(pad, length: int, loses: list[int], tears: list[int], fps: int) -> None:
    """Let packets of some pictures vanish, behind the numbering of packets."""
    from gi.repository import Gst

    def on_packet(_pad, info):
        buffers = info.get_buffer_list() if info.type & Gst.PadProbeType.BUFFER_LIST else [info.get_buffer()]
        for i in range(buffers.length()) if hasattr(buffers, "length") else [0]:
            buffer = buffers.get(i) if hasattr(buffers, "length") else buffers[0]
            number = round(buffer.pts * fps / Gst.SECOND) % length
            if number in loses or (number in tears and buffer.extract_dup(1, 1)[0] & 0x80):
                return Gst.PadProbeReturn.DROP
        return Gst.PadProbeReturn.OK

    pad.add_probe(Gst.PadProbeType.BUFFER | Gst.PadProbeType.BUFFER_LIST, on_packet)


def _protect(server, auth, factory, user: str, password: str, *, is_digest: bool) -> None:
    from gi.repository import GstRtsp

    token = server.RTSPToken()
    token.set_string("media.factory.role", user)
    if is_digest:
        auth.set_supported_methods(GstRtsp.RTSPAuthMethod.DIGEST)
        auth.add_digest(user, password, token)
    else:
        auth.add_basic(server.RTSPAuth.make_basic(user, password), token)
    factory.add_role_from_structure(_role(user))


def _role(user: str):
    from gi.repository import Gst

    role = Gst.Structure.new_empty(user)
    role.set_value("media.factory.access", True)
    role.set_value("media.factory.construct", True)
    return role


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), *sys.argv[4:])

"""The service in a process of its own, a real camera server for each stream, a real broker, a subscriber."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.soak.record import Record
from tests.soak.watching import Subscriber
from tests.support.clips import reading_model, write_signed_clip
from tests.support.mosquitto import Mosquitto
from tests.support.rtsp import RtspMount, RtspServer
from tests.support.wait import wait_until

FPS = 10
LENGTH = 120  # pictures of a clip
CLIPS = ("h264", "h265", "large", "growing")
STALL_S = 3.0
_START_S, _END_S = 120.0, 120.0


class Scene:
    """As many cameras as asked for; each one's stream is `cam-N`, and its pictures are signed with N.

    Args:
        folder: of its own.
    """

    def __init__(self, folder: Path, cameras: int) -> None:
        self.folder = folder
        self.names = [f"cam-{number}" for number in range(cameras)]
        self.cameras = {name: number for number, name in enumerate(self.names)}
        self._environ = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }
        self._credentials = folder / "config/edge-deploy/credentials"
        self._passwords = dict.fromkeys(self.names, "first")
        self._contents = dict.fromkeys(self.names, "h264")
        self.servers: dict[str, RtspServer] = {}
        self._stack = ExitStack()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Scene:
        with ExitStack() as stack:
            self._write_files()
            for name in self.names:
                self.servers[name] = stack.enter_context(RtspServer(self._mounts(name)))
            # What the broker has on its way to the subscriber is not lost with it: no bound, and a session on disk.
            options = ("max_inflight_messages 0", "max_queued_messages 0", "autosave_interval 1")
            self.broker = Mosquitto(self.folder / "broker", options=options, is_persistent=True, is_verbose=False)
            stack.callback(self.broker.kill)
            self.broker.start()
            self.subscriber = Subscriber(self.broker.port, self.cameras)
            stack.callback(self.subscriber.close)
            self.broker.save()
            self.record = stack.enter_context(Record(self.broker.port))
            self.write_pipeline()
            self._process = self._start()
            stack.callback(self._kill)
            wait_until(
                lambda: self.is_running() and all(self.subscriber.count(name) for name in self.names),
                what="a message of every stream",
                timeout_s=_START_S,
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def is_running(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the service has ended with {self._process.returncode}: {self.told()[-4000:]}")
        return True

    def told(self) -> str:
        return (self.folder / "told.txt").read_text(encoding="utf-8")

    def serve(self, name: str, *, content: str | None = None, password: str | None = None) -> None:
        """Start a camera that was killed, perhaps with other pictures or another password."""
        self._contents[name] = content or self._contents[name]
        self._passwords[name] = password or self._passwords[name]
        self.servers[name].start(self._mounts(name))

    def tell_password(self, name: str) -> None:
        """Write down what the camera asks for, as its owner does some time after he has changed it."""
        path = self._credentials / name
        path.with_suffix(".new").write_text(f"soak:{self._passwords[name]}\n", encoding="ascii")
        path.with_suffix(".new").chmod(0o600)
        path.with_suffix(".new").replace(path)

    def stop_broker(self, *, is_kill: bool = False) -> None:
        self.broker.kill() if is_kill else self.broker.stop()
        self.record.leave()

    def start_broker(self, *, was_killed: bool = False) -> None:
        self.broker.start()
        self.record.come_back(was_killed=was_killed)

    def reload(self, *, without: str | None = None) -> None:
        """Let the service take over its streams anew, all or all but one."""
        self.write_pipeline(without=without)
        os.kill(self.pid, signal.SIGHUP)

    def end(self) -> dict:
        """Stop the service as systemd does, and return its account; the subscriber has then heard its last word."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_END_S)
        wait_until(lambda: self.subscriber.goodbye, what="the device says goodbye", timeout_s=_END_S)
        return json.loads((self.folder / "stats.json").read_text(encoding="utf-8"))

    def write_pipeline(self, *, without: str | None = None) -> None:
        streams = [
            {
                "id": name,
                "uri": self.servers[name].url("/a"),
                "credential": name,
                "latency_ms": 100,
                "stall_s": STALL_S,
                "decoder": "software",
            }
            for name in self.names
            if name != without
        ]
        content = {
            "version": 1,
            "device": "soak",
            "model": {"onnx": str(self.folder / "reader.onnx")},
            "publish": {"mode": "all"},
            "mqtt": {"host": "127.0.0.1", "port": self.record.port, "tls": False},
            "streams": streams,
        }
        path = self.folder / "pipeline.new"
        path.write_text(json.dumps(content), encoding="utf-8")
        path.replace(self.folder / "pipeline.yaml")

    def _write_files(self) -> None:
        self._credentials.mkdir(parents=True)
        reading_model(self.folder / "reader.onnx")
        for name, number in self.cameras.items():
            self.tell_password(name)
            write_signed_clip(self.folder / f"{name}-h264.h264", number, count=LENGTH)
            write_signed_clip(self.folder / f"{name}-h265.h265", number, count=LENGTH, codec="libx265")
            write_signed_clip(self.folder / f"{name}-large.h264", number, count=LENGTH, size=256)
            halves = [
                write_signed_clip(self.folder / f"half-{size}.h264", number, count=LENGTH // 2, size=size, first=first)
                for size, first in ((128, 0), (256, LENGTH // 2))
            ]
            growing = b"".join(half.read_bytes() for half in halves)
            (self.folder / f"{name}-growing.h264").write_bytes(growing)

    def _mounts(self, name: str) -> dict[str, RtspMount]:
        content = self._contents[name]
        codec = "h265" if content == "h265" else "h264"
        clip = self.folder / f"{name}-{content}.{codec}"
        return {"/a": RtspMount(str(clip), codec, login=("soak", self._passwords[name]), fps=FPS)}

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "edge.cli.edge_runtime", "run", "-v"]
        command += ["--pipeline", str(self.folder / "pipeline.yaml"), "--stats", str(self.folder / "stats.json")]
        with (self.folder / "told.txt").open("w") as told:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=told, stderr=told, env=self._environ)

    def _kill(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

"""Reads streams in a process of its own, to be stopped by SIGSTOP as a machine that hangs for a moment stops it.

with ReadingProcess({"a": url}) as process:
    process.await_frames(10); process.stop_for(0.6); process.seen["a"]
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Seen:
    """One frame: when it was read (monotonic), the number in its picture, its age by its header."""

    at_s: float
    number: int
    age_s: float


@dataclass(slots=True)
class ReadingProcess:
    """Frames of each stream, as they are read there."""

    urls: dict[str, str]
    options: dict[str, object] = field(default_factory=dict)
    seen: dict[str, list[Seen]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    _process: subprocess.Popen[str] | None = None
    _reader: threading.Thread | None = None

    def __enter__(self) -> ReadingProcess:
        self.seen = {stream: [] for stream in self.urls}
        command = [sys.executable, "-m", __name__, json.dumps([self.urls, self.options])]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._listen)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._reader is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            self._reader.join()
            assert self._process.stdout is not None
            self._process.stdout.close()

    def stop_for(self, seconds: float) -> float:
        """Return when it went on, by the monotonic clock."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        threading.Event().wait(seconds)
        os.kill(self._process.pid, signal.SIGCONT)
        return time.monotonic()

    def resident_bytes(self) -> int:
        assert self._process is not None
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, stream, *values = json.loads(line)
            if what == "frame":
                self.seen[stream].append(Seen(*values))
            else:
                self.told.append(f"{stream} {values[0]}")


def _read_all(urls: dict[str, str], options: dict[str, object]) -> None:
    from edge.config.schema import StreamConfig
    from edge.media.select import make_source
    from tests.support.clips import CANVAS, number_of

    is_over, telling = threading.Event(), threading.Lock()

    def tell(*what: object) -> None:
        with telling:
            print(json.dumps(what), flush=True)

    def read(stream: str, url: str) -> None:
        source = make_source(
            StreamConfig(id=stream, uri=url, **options),
            preprocess=CANVAS,
            base_dir=Path("/"),
            on_status=lambda status: tell("status", stream, f"{status.state.value} {status.reason}"),
        )
        source.open()
        while not is_over.is_set():
            frame = source.read(0.2)
            if frame is not None:
                tell("frame", stream, time.monotonic(), number_of(frame.image), frame.header.decode_ns / 1e9)
        source.close()

    threads = [threading.Thread(target=read, args=one) for one in urls.items()]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    is_over.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    _read_all(*json.loads(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)

"""`python -m tests.camera_faults [MINUTES]`: memory while the servers of sixteen cameras are broken in turn.

Prints resident memory (also after the allocator was told to give back what is free), threads and descriptors of this
process, which reads the cameras as the runtime does; frames and connections so far.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.support.clips import write_clip
from tests.support.rtsp import RtspMount, RtspServer
from tests.support.viewer import Viewer

CAMERAS, SERVERS = 16, 4
FAULT_EVERY_S, FROZEN_S, LINE_EVERY_S = 4.0, 3.0, 20.0


def main(minutes: float) -> None:
    """Break one server after the other, and print a line every twenty seconds."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        clip = str(write_clip(Path(folder) / "a.h264", count=240, gop=15))
        servers = [stack.enter_context(RtspServer({"/a": RtspMount(clip, "h264")})) for _ in range(SERVERS)]
        viewers = [stack.enter_context(Viewer(servers[i % SERVERS].url("/a"), stall_s=1.5)) for i in range(CAMERAS)]
        begun = time.monotonic()
        said = begun - LINE_EVERY_S
        for number, server in enumerate(itertools.cycle(servers)):
            if time.monotonic() - said >= LINE_EVERY_S:
                said = time.monotonic()
                print(f"{said - begun:6.0f} s  {_line(viewers)}", flush=True)
            if time.monotonic() - begun >= minutes * 60:
                return
            _break(server, is_freeze=number // SERVERS % 2 == 1)


def _break(server: RtspServer, *, is_freeze: bool) -> None:
    if is_freeze:
        server.freeze()
        time.sleep(FROZEN_S)
        server.thaw()
    else:
        server.kill()
        time.sleep(1.0)
        server.start()
    time.sleep(FAULT_EVERY_S)


def _line(viewers: list[Viewer]) -> str:
    before_mib = _resident_mib()
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    frames = sum(len(viewer.arrivals) for viewer in viewers)
    for viewer in viewers:  # what the test itself keeps
        for kept in (viewer.headers, viewer.codes):
            kept.clear()
    connections = sum(viewer.source.reconnects for viewer in viewers)
    threads, descriptors = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    return (
        f"resident {before_mib:5.0f} MiB, trimmed {_resident_mib():5.0f} MiB, {threads} threads, "
        f"{descriptors} descriptors, {frames} frames, {connections} reconnections"
    )


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 11.0)

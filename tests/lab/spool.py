"""A device that records each message it publishes, and the disk of its spool, which can be filled and broken."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.lab.device import VirtualDevice
from tests.lab.site import Site
from tests.support.wait import wait_until

Account = tuple[str, int]
RECORD = "/var/lib/edge-runtime-record/all.jsonl"
STATE = "/var/lib/edge-runtime"
_DROP_IN = "/etc/systemd/system/edge-runtime.service.d/99-record.conf"
_ASK = """
import http.client, socket, sys
asked = http.client.HTTPConnection("localhost")
asked.sock = socket.socket(socket.AF_UNIX)
asked.sock.connect("/run/edge-runtime/http.sock")
asked.request("GET", sys.argv[1])
sys.stdout.write(asked.getresponse().read().decode())
"""


def record(device: VirtualDevice) -> None:
    """Let the service write what it publishes into another folder, too; for a pipeline changed by `recorded`.

    systemd sorts the folders by name, and the first is that of the spool.
    """
    device.run(f"cat > {_DROP_IN}; systemctl daemon-reload", content="[Service]\nStateDirectory=edge-runtime-record\n")


def recorded(pipeline: dict[str, Any]) -> None:
    """Change a pipeline: it records what it publishes, follows objects over two lines, and uses all of its disk."""
    pipeline["publish"]["jsonl"] = RECORD
    pipeline["mqtt"]["spool"] = {"free_mib": 0}
    lines = [{"id": f"at-{x}", "start": [x / 10, 1], "end": [x / 10, 0]} for x in (3, 5, 7)]
    for stream in pipeline["streams"]:
        stream["tracking"] = {"lines": lines, "anchor": "centre", "settle_s": 0}


class Published:
    """What a device has written of what it published, from an epoch on."""

    def __init__(self, device: VirtualDevice, since: int = 0) -> None:
        self.last: dict[Account, int] = defaultdict(int)
        self._times: dict[tuple[Account, int], datetime] = {}
        for line in device.run(f"cat {RECORD}").stdout.splitlines():
            one = _message(line)
            if one is None:
                continue
            kind = {"edge.detections/1": "", "edge.event/1": " events"}.get(one["schema"])
            if kind is not None and one["epoch"] >= since:
                account = f"{one['stream']}{kind}", one["epoch"]
                self.last[account] = max(self.last[account], one["seq"])
                self._times[account, one["seq"]] = datetime.fromisoformat(one["captured_at"][:-1])

    @property
    def epochs(self) -> set[int]:
        """The starts that wrote something."""
        return {epoch for _, epoch in self.last}

    def count(self, *, of_events: bool) -> int:
        """Return how many there are."""
        return sum(last for (name, _), last in self.last.items() if name.endswith(" events") == of_events)

    def seconds(self, account: Account, first: int) -> float:
        """Return the time from a message to the last one."""
        return (self._times[account, self.last[account]] - self._times[account, first]).total_seconds()


def _message(line: str) -> dict[str, Any] | None:
    try:
        one: dict[str, Any] = json.loads(line)
    except ValueError:  # the last line of a process that was killed
        return None
    return one


def status(site: Site) -> dict[str, Any]:
    """Return what the status page of the device is drawn from; empty while it does not run."""
    done = site.device.run(["python3", "-c", _ASK, "/status.json"], check=False)
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 and done.stdout.startswith("{") else {}
    return found


def counts(site: Site) -> Mapping[str, int]:
    """Return the counts of MQTT; empty while the service does not run."""
    found: Mapping[str, int] = status(site).get("outputs", {}).get("mqtt", {})
    return found


def wait_for_more(site: Site, *, frames: int = 60, events: int = 3) -> None:
    """Wait until so many more are published, and the disk holds what is due."""
    before = Published(site.device)

    def has_more() -> bool:
        now = Published(site.device)
        wanted = {False: frames, True: events}
        return all(now.count(of_events=kind) - before.count(of_events=kind) >= most for kind, most in wanted.items())

    wait_until(has_more, what=f"{frames} frames and {events} events are published", timeout_s=120)


@contextlib.contextmanager
def small_disk(site: Site, *, length_bytes: int = 8 << 20) -> Iterator[SmallDisk]:
    """Have the StateDirectory of the service on a file system of its own within the block."""
    disk = SmallDisk(site, length_bytes)
    disk.mount()
    try:
        yield disk
    finally:
        disk.remove()


class SmallDisk:
    """An ext4 in a file of the host, mounted in the device over the StateDirectory."""

    def __init__(self, site: Site, length_bytes: int) -> None:
        self._device = site.device
        self._image = site.home / "state.img"
        with self._image.open("wb") as file:
            file.truncate(length_bytes)
        _run("mkfs.ext4", "-q", "-m", "0", self._image)
        self._loop = _run("losetup", "--find", "--show", self._image)
        self._is_mounted = False

    def mount(self) -> None:
        """Stop the service, mount it, start the service."""
        number = Path(self._loop).name.removeprefix("loop")
        self._device.run("systemctl stop edge-runtime")
        self._device.run(f"test -b {self._loop} || mknod {self._loop} b 7 {number}")
        self._device.run(f"mount -t ext4 {self._loop} {STATE}")
        self._device.run(f"rmdir {STATE}/lost+found 2>/dev/null; chown edge-runtime: {STATE}; chmod 700 {STATE}")
        self._is_mounted = True
        _start(self._device)

    def unmount(self) -> None:
        """Stop the service and unmount it."""
        self._device.run("systemctl stop edge-runtime")
        self._device.run(f"umount {STATE}")
        self._is_mounted = False

    def check(self) -> None:
        """Repair it as a boot does."""
        subprocess.run(["e2fsck", "-fy", str(self._loop)], capture_output=True, timeout=60, check=False)

    def fill(self) -> None:
        """Leave no byte free."""
        for name, block_bytes in (("ballast", 65536), ("more", 512)):
            self._device.run(f"dd if=/dev/zero of={STATE}/{name} bs={block_bytes} conv=fsync", check=False)

    def unfill(self) -> None:
        """End `fill`."""
        self._device.run(f"rm -f {STATE}/ballast {STATE}/more")

    def abort(self) -> None:
        """Make it read-only as the kernel does when the flash fails; `unmount` and `check` mend it."""
        self._device.run(f"mount -o remount,abort {STATE}", check=False)
        self._device.run(f"! touch {STATE}/probe")

    def remove(self) -> None:
        """Take it away; the service goes on with what lies below."""
        if self._is_mounted:
            self.unmount()
        _run("losetup", "--detach", self._loop)
        _start(self._device)


def _start(device: VirtualDevice) -> None:
    """Start the service, however often that was done in the last minutes."""
    device.run("systemctl reset-failed edge-runtime; systemctl start edge-runtime")


def _run(*words: str | Path) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout.strip()

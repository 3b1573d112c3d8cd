"""What waits for the broker, under the real unit: over kills, a power cut, a full disk and one that fails.

The device records each message that it publishes, and the disk of its spool can be filled and broken.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.lab.device import VirtualDevice
from tests.lab.site import Site, open_site
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
MEANS = "messages are in memory only, which a power cut takes: "
MOST_DUPLICATES = 20  # ten for each break of a connection to a broker that is near


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
        self._device.run("systemctl stop edge-runtime")
        self._device.run(f"umount {STATE}")
        self._is_mounted = False

    def check(self) -> None:
        """Repair it as a boot does."""
        subprocess.run(["e2fsck", "-fy", str(self._loop)], capture_output=True, timeout=60, check=False)

    def fill(self) -> None:
        for name, block_bytes in (("ballast", 65536), ("more", 512)):
            self._device.run(f"dd if=/dev/zero of={STATE}/{name} bs={block_bytes} conv=fsync", check=False)

    def unfill(self) -> None:
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


@pytest.fixture(scope="module")
def site(shop, served_layers, tmp_path_factory):
    """A device that also writes down what it publishes, and a broker that knows its subscribers over its stops."""
    home = tmp_path_factory.mktemp("site")
    with open_site(home, port=shop.port, layers=served_layers, is_broker_persistent=True) as opened:
        opened.wait_serving(shop.first.manifest.release)
        record(opened.device)
        said = opened.push(shop.signer.variant(shop.first, pipeline=recorded))
        assert said.code == 0, said.told + opened.journal()[-3000:]
        yield opened


@pytest.fixture
def since(site):
    """The epoch in which a test begins."""
    return max(Published(site.device).epochs)


@contextlib.contextmanager
def no_broker(site):
    """The broker is away until the block starts it, or ends."""
    site.broker.stop()
    try:
        yield
    finally:
        site.broker.stop()
        site.broker.start()


@pytest.fixture
def outage(site):
    """The broker is away until the test starts it."""
    with no_broker(site):
        yield


@pytest.fixture
def disk(site):
    """The service keeps its messages on a small disk of its own, and has a broker."""
    with small_disk(site) as made:
        wait_until(lambda: counts(site).get("connected"), what="it serves from the small disk", timeout_s=60)
        yield made


def wait_settled(site, since):
    """Wait until all from an epoch on has come or is declared; return what the checker says, and the record."""
    published = Published(site.device, since)

    def is_settled():
        found = site.watcher.findings(published.epochs)
        return not any(found.undeclared(account, last) for account, last in published.last.items())

    wait_until(is_settled, what="all came or is declared", timeout_s=90)
    return site.watcher.findings(published.epochs), published


def prove(found, published, most_duplicates=MOST_DUPLICATES):
    """Hold the promise against what the device wrote down, and against what came beyond that."""
    opened = dict.fromkeys([*published.last, *found.received, *found.declared, *found.open_from], 0)
    last = {one: max(published.last.get(one, 0), max(found.received.get(one, ()), default=0)) for one in opened}
    found.prove(last, most_duplicates=most_duplicates)


def test_killed_twice_in_an_outage_it_declares_what_that_took(site, since, outage, figures):
    for _ in range(2):
        wait_for_more(site)
        run = site.invocation()
        site.device.run("systemctl kill --kill-who=main -s KILL edge-runtime")
        wait_until(lambda run=run: site.invocation() != run and counts(site), what="it runs again", timeout_s=60)
    wait_for_more(site, frames=20, events=0)
    site.broker.start()

    found, published = wait_settled(site, since)
    prove(found, published)
    assert found.open_from, "what a kill may have taken is declared"
    assert not any(found.declared.values())
    total = published.count(of_events=False), published.count(of_events=True)
    taken = sum(len(set(range(1, last + 1)) - found.received[one].keys()) for one, last in published.last.items())
    assert taken <= 4, "two kills take 20 ms each of ten frames a second and their events"
    figures["spool: two kills in an outage"] = f"{total[0]} frames and {total[1]} events published, {taken} lost"


def test_a_power_cut_in_an_outage_loses_no_event_and_declares_the_frames(site, since, outage, figures):
    wait_for_more(site)
    site.device.power_cut()
    site.device.boot()
    wait_until(lambda: counts(site), what="it serves again", timeout_s=60)
    cut = Published(site.device)
    site.broker.start()

    found, published = wait_settled(site, since)
    prove(found, published)
    lost = {
        account: last - max(found.received[account], default=0)
        for account, last in cut.last.items()
        if account[1] == since
    }
    assert all(found.open_from[account] <= cut.last[account] + 1 for account in lost), "each account is declared open"
    lost_s = max(cut.seconds(account, cut.last[account] - count) for account, count in lost.items())
    events = sum(count for (name, _), count in lost.items() if name.endswith(" events"))
    assert events <= 1, "one that happened within its sync"
    figures["spool: a power cut in an outage"] = (
        f"of {sum(cut.last[account] for account in lost)} messages {sum(lost.values())} lost, {events} of them events, "
        f"the last {lost_s * 1000:.0f} ms; all declared"
    )


def test_a_full_disk_is_said_loses_nothing_and_is_used_again(site, disk, since):
    with no_broker(site):
        wait_for_more(site, frames=20, events=1)
        disk.fill()
        # SQLite's log has room of its own for a while.
        wait_until(lambda: counts(site).get("spool_works") == 0, what="the disk takes none", timeout_s=240)
        full = ("degraded", f"{MEANS}database or disk is full")
        assert (status(site)["state"], status(site)["reason"]) == full
        wait_for_more(site, frames=20, events=1)
        site.broker.start()
        wait_until(lambda: site.watcher.states()[-1] == full, what="subscribers hear of it", timeout_s=30)
        prove(*wait_settled(site, since))

        disk.unfill()
        wait_until(lambda: site.watcher.states()[-1] == ("online", None), what="that it is over", timeout_s=60)
        assert counts(site)["spool_works"] == 1


def test_a_disk_that_becomes_read_only_is_said_over_a_kill_too_and_is_used_again_when_it_is_mended(site, disk, since):
    with no_broker(site):
        wait_for_more(site, frames=20, events=1)
        disk.abort()
        wait_until(lambda: counts(site).get("spool_works") == 0, what="the disk takes none", timeout_s=60)
        run = site.invocation()
        site.device.run("systemctl reset-failed edge-runtime; systemctl kill --kill-who=main -s KILL edge-runtime")
        wait_until(lambda: site.invocation() != run and counts(site), what="it runs without", timeout_s=60)
        assert status(site)["state"] == "degraded"
        assert MEANS in status(site)["reason"]
        wait_for_more(site, frames=20, events=0)
        site.broker.start()
        prove(*wait_settled(site, since))
        wait_until(lambda: MEANS in (site.watcher.states()[-1][1] or ""), what="subscribers hear of it", timeout_s=30)

        disk.unmount()
        disk.check()
        disk.mount()
        wait_until(lambda: counts(site).get("spool_works") == 1, what="the disk is used again", timeout_s=60)
        wait_until(lambda: site.watcher.states()[-1] == ("online", None), what="that it is over", timeout_s=60)
        found, published = wait_settled(site, since)
        prove(found, published, most_duplicates=sum(published.last.values()))  # all that had lain on it comes again


def test_a_spool_that_somebody_removes_under_the_service_is_begun_anew(site, since, outage):
    wait_for_more(site, frames=20, events=1)
    site.device.run(f"rm {STATE}/spool.db*")
    wait_until(lambda: "spool file was removed" in site.journal(), what="it is begun anew", timeout_s=30)
    wait_for_more(site, frames=20, events=1)
    site.device.power_cut()
    site.device.boot()
    wait_until(lambda: counts(site), what="it serves again", timeout_s=60)
    wait_for_more(site, frames=20, events=0)  # the checker knows the last start by its frames
    site.broker.start()

    prove(*wait_settled(site, since))


def test_another_user_of_the_machine_can_neither_read_nor_hold_it(site):
    admin = ["setpriv", "--reuid=admin", "--regid=admin", "--init-groups", "sh", "-c"]
    for command in ("ls .", "cat spool.db", "flock -n spool.db true", "touch spool.db-wal"):
        place = command.replace("spool.db", f"{STATE}/spool.db").replace(" .", f" {STATE}")
        done = site.device.run([*admin, place], check=False)
        assert done.returncode != 0, command
        assert "Permission denied" in done.stderr, done


def test_the_journal_has_no_traceback(site):
    assert "Traceback" not in site.journal()

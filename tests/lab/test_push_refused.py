"""Pushes that a device refuses, or that never reach it whole: what serves is not touched."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.lab.releases import QUICK
from tests.lab.site import Site, open_site

GIB = 1 << 30


@pytest.fixture(scope="module")
def site(shop, served_layers, tmp_path_factory) -> Iterator[Site]:
    """A device with a small disk of its own for /var/lib/edge-deploy."""
    with open_site(tmp_path_factory.mktemp("site"), port=shop.port, layers=served_layers, disk_bytes=2 * GIB) as opened:
        opened.device.power_cut()
        kept = opened.device.root / "var/lib/edge-deploy"
        subprocess.run(["cp", "-a", f"{kept}/.", str(opened.device.data)], check=True, timeout=60)
        shutil.copystat(kept, opened.device.data)
        os.chown(opened.device.data, kept.stat().st_uid, kept.stat().st_gid)
        opened.device.boot()
        opened.wait_serving(shop.first.manifest.release)
        yield opened


def stored(site) -> set[str]:
    return {path.name for path in (*site.file("store").rglob("*"), *site.file("incoming").rglob("*")) if path.is_file()}


def assert_untouched(site, shop, invocation: str) -> None:
    assert site.current() == shop.first.manifest.release
    assert site.invocation() == invocation
    site.wait_serving(shop.first.manifest.release)
    assert site.watcher.undeclared() == {}


def test_f17_a_disk_that_is_full_is_said_before_a_byte_is_sent(site, shop, large):
    invocation, before = site.invocation(), stored(site)
    site.device.fill_disk(leave_bytes=GIB)

    said = site.push(large)

    assert (said.code, said.result["code"], said.result["bytes"]) == (6, "preflight.space", 0), said.told
    assert stored(site) == before
    assert_untouched(site, shop, invocation)
    site.device.empty_disk()


def test_f17_a_disk_that_fills_up_during_a_transfer_stops_it_and_it_goes_on_later(site, shop):
    clips = {f"clips/large-{number}.bin": os.urandom(24 << 20) for number in range(3)}
    new, invocation = shop.signer.variant(shop.first, health=QUICK, more=clips), site.invocation()
    site.device.run("printf 'reserve_bytes = 0\\nreserve_share = 0\\n' >> /etc/edge-deploy/device.toml")
    client = site.start_until("upload", "begin", "push", new.path)
    client.send_signal(signal.SIGSTOP)  # the disk fills up while one of the three is on its way at most
    site.device.fill_disk(leave_bytes=1 << 20)
    client.send_signal(signal.SIGCONT)

    said = site.end(client)

    assert (said.code, said.result["code"]) == (1, "device.disk.space"), said.told + str(said.documents[-2:])
    assert_untouched(site, shop, invocation)
    site.device.empty_disk()
    assert site.push(new, "--plan").code == 10


def test_f8_a_link_that_goes_silent_is_given_up_by_both_sides(site, large, figures):
    old = site.current()
    client = site.start_until("upload", "progress", "push", large.path)

    site.device.cable.unplug()
    try:
        noticed_s = site.seconds_until_told(client, "transfer.timeout")
        freed_s = site.seconds_until_free()
    finally:
        site.device.cable.plug()

    figures["half-open link: noticed here after"] = f"{noticed_s:.0f} s"
    figures["half-open link: lock free after"] = f"{noticed_s + freed_s:.0f} s"
    assert noticed_s <= 20
    assert noticed_s + freed_s <= 32
    said = site.end(client)  # the link is back, and so is the push, from where it was
    assert (said.code, said.result["event"]) == (0, "committed"), said.told
    assert old != site.current() == large.manifest.release
    site.wait_serving(large.manifest.release)


def test_f8_a_push_that_shall_not_try_again_ends_as_soon_as_the_silence_is_noticed(site, large, figures):
    client = site.start_until("upload", "progress", "push", "--reconnect", "1", large.path)

    site.device.cable.unplug()
    try:
        began = time.monotonic()
        said = site.end(client)
        ended_s = time.monotonic() - began
        site.seconds_until_free()
    finally:
        site.device.cable.plug()

    assert (said.code, said.result["event"]) == (3, "unreachable"), said.told
    assert ended_s <= 20
    figures["half-open link: exit 3 with --reconnect 1"] = f"{ended_s:.0f} s"
    again = site.push(large)
    assert (again.code, again.result["event"]) == (0, "committed"), again.told


def test_f8_a_device_that_does_not_answer_is_given_up_soon(site):
    site.device.cable.unplug()
    try:
        said = site.do("status")
    finally:
        site.device.cable.plug()

    assert said.code == 3
    assert said.seconds < 20

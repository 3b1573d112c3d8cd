"""Pushes that a device refuses, or that never reach it whole: what serves is not touched."""

import dataclasses
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from edge.bundle.folder import Bundle
from tests.lab.releases import HEALTH
from tests.lab.site import Site, open_site

QUICK = dataclasses.replace(HEALTH, hold_s=3, deadline_s=30)
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


@pytest.fixture
def large(shop) -> Bundle:
    return shop.signer.variant(shop.first, health=QUICK, more={"clips/large.bin": os.urandom(24 << 20)})


def stored(site) -> set[str]:
    return {path.name for path in (*site.file("store").rglob("*"), *site.file("incoming").rglob("*")) if path.is_file()}


def assert_untouched(site, shop, invocation: str) -> None:
    assert site.current() == shop.first.manifest.release
    assert site.invocation() == invocation
    site.wait_serving(shop.first.manifest.release)
    assert site.watcher.undeclared() == {}


def copy_of(bundle: Bundle, to) -> Bundle:
    shutil.copytree(bundle.path, to)
    return dataclasses.replace(bundle, path=to)


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


@pytest.mark.parametrize("path", ["manifest.json", "manifest.json.sig", "clips/large.bin"])
def test_f11_a_bundle_with_one_byte_changed_leaves_nothing_on_the_device(site, shop, large, tmp_path, path):
    invocation, before = site.invocation(), stored(site)
    tampered = copy_of(large, tmp_path / "tampered.bundle")
    content = bytearray((tampered.path / path).read_bytes())
    at = content.index(b'"sequence":') + len(b'"sequence":') if path == "manifest.json" else len(content) // 2
    content[at] = ord("8") if content[at] == ord("9") else ord("9")
    (tampered.path / path).write_bytes(content)

    said = site.push(tampered)

    # What is not what the manifest says is found here; what the signature does not cover, on the device.
    assert said.code == (2 if path == "clips/large.bin" else 4), said.told + str(said.documents[-2:])
    assert not {one.sha256 for one in large.manifest.files if one.path == path} & stored(site)
    assert path == "clips/large.bin" or stored(site) == before
    assert_untouched(site, shop, invocation)


def test_f11_a_bundle_of_a_stranger_is_refused(site, shop, tmp_path):
    invocation, before = site.invocation(), stored(site)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "stranger")], check=True, timeout=20
    )
    stranger = type(shop.signer)(tmp_path / "stranger", tmp_path)

    said = site.push(stranger.variant(shop.second))

    assert (said.code, said.result["code"]) == (4, "verify.signature.signer"), said.told
    assert stored(site) == before
    assert_untouched(site, shop, invocation)


def test_f13_an_older_sequence_is_refused(site, shop):
    invocation, before = site.invocation(), stored(site)

    said = site.push(shop.signer.variant(shop.second, sequence=1))

    assert (said.code, said.result["code"]) == (4, "verify.downgrade"), said.told
    assert stored(site) == before
    assert_untouched(site, shop, invocation)


def test_f10_a_second_push_is_told_who_is_at_work_or_waits(site, shop, large):
    other = shop.signer.variant(shop.second, health=QUICK)
    first = site.start_until("build", "begin", "push", large.path)

    refused = site.push(other)
    waited = site.push(other, "--lock-wait", "120")

    assert (refused.code, refused.result["code"]) == (5, "lock.held"), refused.told
    assert large.manifest.release in refused.result["hint"]
    assert site.end(first).code == 0
    assert (waited.code, waited.result["event"]) == (0, "committed"), waited.told
    assert site.current() == other.manifest.release


def test_f8_a_link_that_goes_silent_is_given_up_by_both_sides(site, shop, figures):
    new = shop.signer.variant(shop.first, health=QUICK, more={"clips/large.bin": os.urandom(24 << 20)})
    old = site.current()
    client = site.start_until("upload", "progress", "push", new.path)

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
    assert old != site.current() == new.manifest.release
    site.wait_serving(new.manifest.release)


def test_f8_a_push_that_shall_not_try_again_ends_as_soon_as_the_silence_is_noticed(site, shop, figures):
    new = shop.signer.variant(shop.first, health=QUICK, more={"clips/large.bin": os.urandom(24 << 20)})
    client = site.start_until("upload", "progress", "push", "--reconnect", "1", new.path)

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
    again = site.push(new)
    assert (again.code, again.result["event"]) == (0, "committed"), again.told


def test_f8_a_device_that_does_not_answer_is_given_up_soon(site):
    site.device.cable.unplug()
    try:
        said = site.do("status")
    finally:
        site.device.cable.plug()

    assert said.code == 3
    assert said.seconds < 20

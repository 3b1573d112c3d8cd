"""A device with a kernel of its own: its clock can be wrong, and what was not synced is gone with its power."""

import os
import time
from collections.abc import Iterator

import pytest

from tests.lab.image import is_foreign, is_machine
from tests.lab.releases import QUICK
from tests.lab.site import Site, open_site
from tests.support.wait import wait_until

pytestmark = pytest.mark.skipif(not is_machine() or is_foreign(), reason="for make lab-machine")

A_DAY_S = 86_400
PAST = ("2026-10-01T00:00:00Z", "2026-10-31T00:00:00Z")


@pytest.fixture(scope="module")
def site(shop, provisioned_layer, tmp_path_factory, figures) -> Iterator[Site]:
    """A machine that serves its first release."""
    with open_site(tmp_path_factory.mktemp("site"), port=shop.port, layers=[provisioned_layer]) as opened:
        said = opened.push(shop.first)
        assert said.code == 0, f"{said.documents}{said.told}{opened.journal()}"
        opened.wait_serving(shop.first.manifest.release)
        figures["machine: first push"] = f"{said.seconds:.1f} s, of which the build {said.took_s('build'):.1f} s"
        yield opened


def changed(shop, **what):
    """A release of its own with the engine of the first."""
    return shop.signer.variant(shop.first, health=QUICK, more={"clips/other.bin": os.urandom(1000)}, **what)


def test_f14_with_a_clock_in_1970_a_device_takes_what_is_valid_and_not_what_has_expired(site, shop):
    service = site.invocation()
    site.device.run(f"date --set=@{A_DAY_S}")
    assert int(site.device.run("date +%s").stdout) < 2 * A_DAY_S

    refused = site.push(changed(shop, lifetime=PAST))
    assert (refused.code, refused.result["code"]) == (4, "verify.expired"), refused.told
    assert site.invocation() == service
    new = changed(shop)
    taken = site.push(new)
    assert (taken.code, taken.result["event"]) == (0, "committed"), taken.told
    site.wait_serving(new.manifest.release)

    service = site.invocation()
    site.device.run(f"date --set=@{int(time.time())}")  # as when the network comes up
    site.wait_serving(new.manifest.release)
    assert site.invocation() == service
    assert site.push(new).result["event"] == "unchanged"
    assert site.watcher.undeclared() == {}


def test_f14_a_device_whose_battery_is_dead_boots_and_serves(site):
    site.device.power_cut()
    site.device.rtc = "1970-01-01"
    try:
        site.device.boot()
        assert int(site.device.run("date +%s").stdout) < time.time() - A_DAY_S  # systemd's own date, at the earliest
        site.wait_serving(site.current())
    finally:
        site.device.power_cut()
        site.device.rtc = "utc"
        site.device.boot()
    site.wait_serving(site.current())


@pytest.mark.parametrize(
    ("phase", "event", "cuts"),
    [("upload", "progress", 1), ("build", "begin", 1), ("switch", "begin", 2), ("trial", "progress", 1)],
)
def test_f1_a_plug_that_is_pulled_leaves_a_whole_release_and_the_push_converges(
    site, shop, retrained, phase, event, cuts
):
    large = {"clips/large.bin": os.urandom(16 << 20)}
    new = shop.signer.variant(retrained if phase == "build" else shop.first, health=QUICK, more=large)
    old = site.current()

    client = site.start_until(phase, event, "push", new.path)
    if phase == "switch":
        wait_until(lambda: site.current() == new.manifest.release, what="the switch moves", timeout_s=60)
    for _ in range(cuts):
        site.device.power_cut()
        before = len(site.watcher.arrived())
        site.device.boot()

    whole = {old, new.manifest.release}
    assert site.current() in whole
    # Not which one: the client is already at work again, and may be faster than the service.
    wait_until(lambda: len(site.watcher.arrived()) > before, what="the machine serves", timeout_s=300)
    assert {one.release for one in site.watcher.arrived()[before:]} <= whole
    said = site.end(client)
    if said.code:
        said = site.push(new, "--retry-bad")
    assert said.code == 0, said.told + str(said.documents[-3:])
    assert site.current() == new.manifest.release
    site.wait_serving(new.manifest.release)
    assert "Traceback" not in site.journal()

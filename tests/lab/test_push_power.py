"""The device is restarted, or its power is cut, while a push is at work: it serves, and the push ends well."""

import dataclasses
import os

import pytest

from tests.lab.releases import HEALTH
from tests.support.wait import wait_until

QUICK = dataclasses.replace(HEALTH, hold_s=3, deadline_s=30)


@pytest.mark.parametrize(
    ("how", "phase", "event"),
    [
        ("power", "upload", "progress"),
        ("power", "build", "begin"),
        ("power", "switch", "begin"),
        ("power", "trial", "progress"),
        ("reboot", "build", "begin"),
        ("reboot", "trial", "progress"),
    ],
)
def test_f1_a_device_that_goes_down_serves_again_and_the_same_push_goes_on(site, shop, how, phase, event):
    new = shop.signer.variant(shop.first, health=QUICK, more={"clips/large.bin": os.urandom(24 << 20)})
    old = site.current()

    client = site.start_until(phase, event, "push", new.path)
    if phase == "switch":
        wait_until(lambda: site.current() == new.manifest.release, what="the switch moves", timeout_s=30)
    if how == "power":
        site.device.power_cut()
        site.device.boot()
    else:
        site.device.reboot()

    assert site.current() in (old, new.manifest.release)
    wait_until(lambda: site.is_in("edge-runtime", "active"), what="the service runs", timeout_s=60)
    said = site.end(client)
    if said.code:  # a reboot may have ended the trial as an orderly stop, which is a way back
        said = site.push(new, "--retry-bad")
    assert said.code == 0, said.told + str(said.documents[-3:])
    assert site.current() == new.manifest.release
    site.wait_serving(new.manifest.release)
    assert "Traceback" not in site.journal()

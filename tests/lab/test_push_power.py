"""The device is restarted, or its power is cut, while a push is at work: it serves, and the push ends well."""

import pytest

from tests.support.wait import wait_until


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
def test_f1_a_device_that_goes_down_serves_again_and_the_same_push_goes_on(site, large, how, phase, event):
    old = site.current()

    client = site.start_until(phase, event, "push", large.path)
    if phase == "switch":
        wait_until(lambda: site.current() == large.manifest.release, what="the switch moves", timeout_s=30)
    if how == "power":
        site.device.power_cut()
        site.device.boot()
    else:
        site.device.reboot()

    assert site.current() in (old, large.manifest.release)
    wait_until(lambda: site.is_in("edge-runtime", "active"), what="the service runs", timeout_s=60)
    said = site.end(client)
    if said.code:  # a reboot may have ended the trial as an orderly stop, which is a way back
        said = site.push(large, "--retry-bad")
    assert said.code == 0, said.told + str(said.documents[-3:])
    assert site.current() == large.manifest.release
    site.wait_serving(large.manifest.release)
    assert "Traceback" not in site.journal()

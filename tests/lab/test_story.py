"""One whole story of a device, short enough for every run of `.ci/run`; `make lab` has the long ones."""

import dataclasses

import pytest

from tests.lab.releases import HEALTH
from tests.lab.site import open_site
from tests.support.wait import wait_until

LONG_ENOUGH = dataclasses.replace(HEALTH, hold_s=8)  # to lose power within the trial


@pytest.mark.story
def test_a_machine_becomes_a_device_is_pushed_to_loses_power_and_is_taken_back(shop, provisioned_layer, tmp_path):
    first = shop.first.manifest.release
    second = shop.signer.variant(shop.second, health=LONG_ENOUGH)
    with open_site(tmp_path, port=shop.port, layers=[provisioned_layer]) as site:
        said = site.push(shop.first)
        assert (said.code, said.result["event"]) == (0, "committed"), f"{said.told}{site.journal()}"
        site.wait_serving(first)

        said = site.push(shop.first)
        assert (said.code, said.result["event"]) == (0, "unchanged"), said.told

        client = site.start_until("trial", "progress", "push", second.path)
        site.device.power_cut()
        site.device.boot()
        said = site.end(client)
        if said.code:  # whether the trial had ended is a matter of seconds
            said = site.push(second, "--retry-bad")
        assert said.code == 0, f"{said.documents[-3:]}{said.told}"
        site.wait_serving(second.manifest.release)

        said = site.do("rollback")
        assert (said.code, said.result["event"]) == (0, "rolled-back"), said.told
        site.wait_serving(first)

        status = site.status()
        assert (status["current"], status["state"]["last"]["result"]) == (first, "rolled-back")
        wait_until(lambda: site.watcher.undeclared() == {}, what="no message is missing that nobody declared lost")
        assert "Traceback" not in site.journal()

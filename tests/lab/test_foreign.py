"""On the architecture of a Jetson, emulated: the whole way once. What takes how long says nothing of a Jetson."""

import pytest

from tests.lab.emulation import is_foreign
from tests.lab.image import debian_architecture
from tests.lab.releases import length_bytes

pytestmark = pytest.mark.skipif(not is_foreign(debian_architecture()), reason="for make lab-aarch64")


def test_a_device_of_another_architecture_is_provisioned_pushed_to_and_rolled_back(site, shop, figures):
    """The site stands on a provisioned device that has committed its first push."""
    first, second = shop.first.manifest.release, shop.second.manifest.release
    assert site.device.run("uname -m").stdout.strip() == "aarch64"
    assert site.status()["state"]["last"]["result"] == "committed"

    unchanged = site.push(shop.first)
    assert (unchanged.code, unchanged.result["event"]) == (0, "unchanged"), unchanged.told
    assert unchanged.result["bytes"] < length_bytes(shop.first) / 100

    pushed = site.push(shop.second)
    assert (pushed.code, pushed.result["event"]) == (0, "committed"), pushed.told + site.journal()[-4000:]
    site.wait_serving(second)

    back = site.do("rollback")
    assert (back.code, back.result["event"]) == (0, "rolled-back"), back.told
    site.wait_serving(first)
    assert site.watcher.undeclared() == {}
    figures["aarch64, emulated: unchanged push"] = f"{unchanged.seconds:.1f} s"
    figures["aarch64, emulated: new table"] = (
        f"{pushed.seconds:.1f} s, of which the build {pushed.took_s('build'):.1f} s"
    )
    figures["aarch64, emulated: rollback"] = f"{back.seconds:.1f} s"

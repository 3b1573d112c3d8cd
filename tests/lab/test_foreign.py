"""On the architecture of a Jetson: provisioned, pushed to, rolled back. Its times say nothing of a Jetson."""

import pytest

from tests.lab.image import is_foreign
from tests.lab.provisioning import have_patience, provision
from tests.lab.releases import length_bytes
from tests.lab.site import open_site

pytestmark = pytest.mark.skipif(not is_foreign(), reason="for make lab-aarch64")


@pytest.fixture(scope="module")
def site(shop, tmp_path_factory):
    """A machine of another architecture, that nobody has provisioned."""
    with open_site(tmp_path_factory.mktemp("site"), port=shop.port, layers=[]) as opened:
        yield opened


def test_a_device_of_another_architecture_is_provisioned_pushed_to_restarted_and_rolled_back(site, shop, figures):
    first, second = shop.first.manifest.release, shop.second.manifest.release
    assert site.device.run("uname -m").stdout.strip() == "aarch64"
    provisioned = provision(site.device, timeout_s=1800)
    assert provisioned.returncode == 0, provisioned.stderr
    have_patience(site.device)

    begun = site.push(shop.first)
    assert (begun.code, begun.result["event"]) == (0, "committed"), begun.told + site.journal()[-4000:]
    site.wait_serving(first)

    unchanged = site.push(shop.first)
    assert (unchanged.code, unchanged.result["event"]) == (0, "unchanged"), unchanged.told
    assert unchanged.result["bytes"] < length_bytes(shop.first) / 100

    pushed = site.push(shop.second)
    assert (pushed.code, pushed.result["event"]) == (0, "committed"), pushed.told + site.journal()[-4000:]
    site.wait_serving(second)

    site.device.reboot()
    site.wait_serving(second)

    back = site.do("rollback")
    assert (back.code, back.result["event"]) == (0, "rolled-back"), back.told + site.journal()[-4000:]
    site.wait_serving(first)
    assert site.watcher.undeclared() == {}
    for name, said in {"first push": begun, "new table": pushed}.items():
        figures[f"aarch64: {name}"] = f"{said.seconds:.1f} s, of which the build {said.took_s('build'):.1f} s"
    for name, said in {"unchanged push": unchanged, "rollback": back}.items():
        figures[f"aarch64: {name}"] = f"{said.seconds:.1f} s"

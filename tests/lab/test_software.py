"""A booted device that is given the software that runs it by a release, under its real units and users."""

from __future__ import annotations

import pytest

from tests.lab.releases import HEALTH
from tests.support.broken_software import BREAKS, NEXT, broken
from tests.support.wait import wait_until
from tests.support.wheels import key_of, own_with, software_files

HOME = "/var/lib/edge-software"


@pytest.fixture(scope="module")
def brought(shop):
    """A release that brings software of version 0.2.0, and the key of that."""
    software = software_files(own_with(NEXT))
    return shop.signer.variant(shop.second, software=software), key_of(software)


def command_of(site):
    return site.device.run("tr '\\0' ' ' </proc/$(systemctl show -p MainPID --value edge-runtime)/cmdline").stdout


def agent_says(site):
    """Return the greeting of the agent that a push would meet."""
    return site.device.run(
        "runuser -u edge-deploy -- /opt/edge/bin/edge-runtime agent </dev/null | tr -d '\\0 '"
    ).stdout


def proven(site):
    return site.device.run(f"readlink {HOME}/proven", check=False).stdout.strip()


def test_a_pushed_release_brings_its_software_and_is_served_by_it(site, brought, figures):
    bundle, key = brought
    assert '"software":"0.1.0"' in agent_says(site)

    said = site.push(bundle)

    assert (said.code, said.result["event"]) == (0, "committed"), said.told + site.journal()
    site.wait_serving(bundle.manifest.release)
    assert f"{HOME}/{key}/edge-runtime run" in command_of(site)
    wait_until(lambda: proven(site) == key, what="agent and pull follow", timeout_s=60)
    assert '"software":"0.2.0"' in agent_says(site)
    owners = site.device.run(f"find {HOME} -printf '%u %m\\n' | sort -u").stdout.split("\n")
    assert {line.split()[0] for line in owners if line} == {"edge-software"}
    assert not [line for line in owners if line and int(line.split()[1][-3:], 8) & 0o022 and "777" not in line]
    assert key[:12] in str(site.status()["releases"])
    figures["a release that brings edge-deploy"] = f"{said.result['bytes']} bytes, {said.seconds:.1f} s"


def test_it_serves_with_it_after_a_restart(site, brought):
    bundle, key = brought

    site.device.reboot()

    site.wait_serving(bundle.manifest.release)
    assert f"{HOME}/{key}/edge-runtime run" in command_of(site)
    assert proven(site) == key


def test_root_runs_what_provision_installed_whatever_was_brought(site):
    told = site.device.run("/opt/edge/bin/edge-runtime agent </dev/null | tr -d '\\0 '").stdout

    assert '"software":"0.1.0"' in told


@pytest.mark.parametrize(("what", "code"), [("edge/runtime/serve/release.py", 8), ("edge/runtime/serve/parts.py", 7)])
def test_software_that_is_broken_is_left(site, shop, brought, what, code):
    bundle, key = brought
    assert what in BREAKS
    bad = shop.signer.variant(
        shop.second, software=software_files(own_with({**NEXT, what: broken(what)})), health=HEALTH
    )

    said = site.push(bad)

    assert said.code == code, said.told
    site.wait_serving(bundle.manifest.release)
    assert f"{HOME}/{key}/edge-runtime run" in command_of(site)
    assert proven(site) == key


def test_going_back_is_going_back_to_the_software_of_before(site, shop):
    said = site.do("rollback")

    assert said.code in (0, 8), said.told
    site.wait_serving(shop.first.manifest.release)
    assert HOME not in command_of(site)
    wait_until(lambda: proven(site) == "", what="agent and pull are what is installed", timeout_s=60)

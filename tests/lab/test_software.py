"""A booted device that is given the software that runs it by a release, under its real units and users."""

import hashlib
import json

import pytest

from edge.deploy.provision.facts import Environment
from edge.deploy.provision.wheels import gather_libraries
from tests.lab.releases import HEALTH
from tests.support.wait import wait_until
from tests.support.wheels import BREAKS, NEXT, broken, key_of, own_with, software_files

HOME = "/var/lib/edge-software"


@pytest.fixture(scope="module")
def brought(shop):
    """A release that brings software of version 0.2.0, and the key of that."""
    software = software_files(own_with(NEXT))
    return shop.signer.variant(shop.second, software=software), key_of(software)


def command_of(site):
    command = "tr '\\0' ' ' </proc/$(systemctl show -p MainPID --value edge-runtime)/cmdline"
    return site.device.run(command, check=False).stdout


def installed_at(site, key):
    """Return the folder of software over what is installed: SHA-256 over its key and that folder, a line each."""
    beside = site.device.run("readlink -f /opt/edge").stdout.strip()
    return HOME + "/" + hashlib.sha256(f"{key}\n{beside}\n".encode()).hexdigest()


def agent_says(site):
    """Return the greeting of the agent that a push would meet."""
    return site.device.run(
        "runuser -u edge-deploy -- /opt/edge/bin/edge-runtime agent </dev/null | tr -cd '[:graph:]'"
    ).stdout


def test_a_pushed_release_brings_its_software_and_is_served_by_it(site, brought, figures):
    bundle, key = brought
    assert '"software":"0.1.0"' in agent_says(site)

    said = site.push(bundle)

    assert (said.code, said.result["event"]) == (0, "committed"), said.told + site.journal()
    site.wait_serving(bundle.manifest.release)
    assert f"{installed_at(site, key)}/edge-runtime run" in command_of(site)
    assert '"software":"0.1.0"' in agent_says(site)  # who takes the next release stays what provision has installed
    owners = site.device.run(f"find {HOME} -printf '%u %m\\n' | sort -u").stdout.split("\n")
    assert {line.split()[0] for line in owners if line} == {"edge-software"}
    assert not [line for line in owners if line and int(line.split()[1][-3:], 8) & 0o022 and "777" not in line]
    assert key[:12] in str(site.status()["releases"])
    figures["a release that brings edge-deploy"] = f"{said.result['bytes']} bytes, {said.seconds:.1f} s"


def test_it_serves_with_it_after_a_restart(site, brought):
    bundle, key = brought

    site.device.reboot()

    site.wait_serving(bundle.manifest.release)
    assert f"{installed_at(site, key)}/edge-runtime run" in command_of(site)


def test_software_that_was_damaged_while_the_device_was_off_is_installed_again_before_it_serves(site, brought):
    bundle, key = brought
    folder = installed_at(site, key)
    site.device.run(f"printf x >>{folder}/lib/edge/version.py; rm {folder}/edge-runtime")

    site.device.reboot()

    site.wait_serving(bundle.manifest.release)
    assert f"{folder}/edge-runtime run" in command_of(site)
    assert "software is reinstalled" in site.device.run("journalctl -b -o cat -u edge-software").stdout


def test_software_that_is_lost_while_it_serves_comes_back_by_itself(site, brought):
    bundle, key = brought
    folder = installed_at(site, key)
    site.device.run(f"rm -r {folder}; systemctl kill -s KILL edge-runtime")

    wait_until(lambda: f"{folder}/edge-runtime run" in command_of(site), what="it runs with it", timeout_s=120)
    site.wait_serving(bundle.manifest.release)


def test_software_is_laid_over_what_provision_installs_later_before_the_service_begins_with_that(site, brought):
    bundle, key = brought
    before = installed_at(site, key)
    move = "sed -i 1s,$old,/opt/edge-later, /opt/edge-later/bin/*"
    site.device.run(f"old=$(readlink -f /opt/edge); cp -a $old /opt/edge-later; {move}; ln -sfn edge-later /opt/edge")
    site.device.run("systemctl start edge-software && systemctl restart edge-runtime")

    site.wait_serving(bundle.manifest.release)
    assert installed_at(site, key) != before
    assert f"{installed_at(site, key)}/edge-runtime run" in command_of(site)


def test_root_runs_what_provision_installed_whatever_was_brought(site):
    told = site.device.run(
        "timeout 20 /opt/edge/bin/edge-runtime -v run --release /var/lib/edge-deploy/current 2>&1", check=False
    ).stdout

    assert "device.software.missing" in told


@pytest.mark.parametrize(("what", "code"), [("edge/runtime/serve/engine.py", 8), ("edge/runtime/serve/parts.py", 7)])
def test_software_that_is_broken_is_left(site, shop, brought, what, code):
    bundle, key = brought
    assert what in BREAKS
    bad = shop.signer.variant(
        shop.second, software=software_files(own_with({**NEXT, what: broken(what)})), health=HEALTH
    )

    said = site.push(bad)

    assert said.code == code, str(said.documents[-1]) + site.journal()
    site.wait_serving(bundle.manifest.release)
    assert f"{installed_at(site, key)}/edge-runtime run" in command_of(site)


def test_a_release_brings_its_libraries_and_computes_with_those(site, shop, figures):
    facts = json.loads(site.device.run("/opt/edge/bin/edge-runtime facts").stdout)
    major, minor = (int(part) for part in facts["python"].split(".")[:2])
    paths = gather_libraries(Environment(facts["architecture"], (major, minor)))
    software = software_files(own_with(NEXT), **{name: path.read_bytes() for name, path in paths.items()})
    bundle = shop.signer.variant(shop.first, software=software)

    said = site.push(bundle)

    assert (said.code, said.result["event"]) == (0, "committed"), said.told + site.journal()
    site.wait_serving(bundle.manifest.release)
    folder = installed_at(site, key_of(software))
    maps = site.device.run("cat /proc/$(systemctl show -p MainPID --value edge-runtime)/maps").stdout
    loaded = {line.split()[-1] for line in maps.splitlines() if line.endswith(".so") or ".so." in line}
    for name in ("numpy", "openvino"):
        of_it = {path for path in loaded if f"/{name}/" in path}
        assert of_it, f"nothing of {name} is loaded"
        assert {path for path in of_it if not path.startswith(folder)} == set()
    size_mib = sum(int(word) for word in site.device.run(f"du -sk {folder} | cut -f1").stdout.split()) / 1024
    figures["a release that brings its libraries"] = (
        f"{said.result['bytes']} bytes, {size_mib:.0f} MiB installed, {said.seconds:.1f} s"
    )


def test_a_device_that_starts_with_its_libraries_serves(site, figures):
    before = site.current()

    site.device.reboot()

    site.wait_serving(before)
    hashing = "import time; from edge.runtime.software.binding import program_for; b = time.time(); "
    hashing += "print(program_for(['run', '--release', '/var/lib/edge-deploy/current']), time.time() - b)"
    program, seconds = site.device.run(
        ["runuser", "-u", "edge-runtime", "--", "/opt/edge/bin/python", "-IB", "-c", hashing]
    ).stdout.split()
    assert program.startswith(HOME)
    figures["the hand-over to software with its libraries"] = f"{float(seconds):.2f} s"


def test_going_back_is_going_back_to_the_software_of_before(site, shop):
    said = site.do("rollback", "--to", shop.first.manifest.release)

    assert said.code in (0, 8), said.told
    site.wait_serving(shop.first.manifest.release)
    assert HOME not in command_of(site)

"""A booted device that fetches its releases from a registry by itself, under its real units."""

import json
import shutil
import time
from collections.abc import Iterator

import pytest

from edge.deploy.publish import publish
from edge.deploy.rings.desk import open_desk
from edge.deploy.rings.promote import Promoter
from tests.lab.network import ip
from tests.lab.provisioning import provision
from tests.lab.releases import QUICK, Signer
from tests.lab.site import Site, open_site
from tests.lab.test_push_bad_releases import SHORT, without_secret
from tests.support.manifests import ssh_key
from tests.support.registry import LOGIN, Registry
from tests.support.wait import wait_until

PULL = "edge-pull.service"


class Fetching:
    """A site whose device looks into `registry` for what it is to run."""

    def __init__(self, site: Site, registry: Registry) -> None:
        self.site, self.registry, self.device = site, registry, site.device

    def publish(self, bundle, ring: str = "all"):
        reference, ca = self.registry.reference(), self.registry.certificates.ca
        done = publish(bundle, reference, login=LOGIN, ca=ca)
        with open_desk(reference, login=LOGIN, ca=ca) as desk:
            promoter = Promoter(desk, self.device.push_key, valid_s=86_400.0)
            promoter.promote(desk.release(bundle.manifest.release), ring)
        return done

    def look(self) -> None:
        """Have the device look now, and wait for the end of it; a look that its timer began before does not count."""
        asked_us = time.monotonic_ns() // 1000  # a container has our clock
        while True:
            self.device.run(f"systemctl start {PULL}", timeout_s=600)
            began = self.device.run(f"systemctl show -p ExecMainStartTimestampMonotonic --value {PULL}").stdout
            if int(began) > asked_us:
                return

    def said(self) -> str:
        return self.device.run(f"journalctl --no-pager -q -o cat -u {PULL}").stdout

    def wait_said(self, text: str) -> None:
        """Wait until pull has said `text`: the journal reads it behind the end of the unit."""
        try:
            wait_until(lambda: text in self.said(), what=f"pull says {text!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it said:\n{self.said()[-4000:]}") from None


@pytest.fixture(scope="module")
def fetching(shop, provisioned_layer, tmp_path_factory) -> Iterator[Fetching]:
    if shutil.which("docker-registry") is None:
        pytest.skip("docker-registry is not installed")
    folder = tmp_path_factory.mktemp("fetching")
    with (
        open_site(folder / "site", port=shop.port, layers=[provisioned_layer]) as site,
        Registry(folder / "registry", host="", also=("workstation",)) as registry,
    ):
        secret = "/etc/edge-deploy/credentials/registry-login"
        site.device.run(f"install -m 0600 /dev/stdin {secret}", content=f"{LOGIN.user}:{LOGIN.password}\n")
        where = ("--pull-from", f"workstation:{registry.port}/farms/gates")
        done = provision(site.device, *where, "--registry-ca", str(registry.certificates.ca))
        assert done.returncode == 0, done.stderr
        yield Fetching(site, registry)


def test_provision_turns_the_timer_on_and_has_nothing_to_change_again(fetching):
    active = fetching.device.run("systemctl is-active edge-pull.timer edge-agent.socket").stdout.split()

    where = ("--pull-from", f"workstation:{fetching.registry.port}/farms/gates")
    again = provision(fetching.device, *where, "--registry-ca", str(fetching.registry.certificates.ca), "--plan")

    assert active == ["active", "active"]
    assert again.returncode == 0, again.stdout + again.stderr


def test_a_device_fetches_its_first_release_and_serves_it(fetching, shop, figures):
    fetching.publish(shop.first)

    fetching.look()

    assert fetching.site.current() == shop.first.manifest.release, fetching.said()
    fetching.site.wait_serving(shop.first.manifest.release)
    assert fetching.site.state()["last"]["result"] == "committed"
    fetching.wait_said(f"committed, {shop.first.manifest.release}")


def test_a_look_that_finds_nothing_new_changes_nothing(fetching, shop, figures):
    before = fetching.site.invocation()

    fetching.look()

    fetching.wait_said(f"unchanged, {shop.first.manifest.release}")
    assert fetching.site.invocation() == before
    took = "systemctl show -p ExecMainStartTimestampMonotonic -p ExecMainExitTimestampMonotonic --value " + PULL
    begin_us, end_us = sorted(int(one) for one in fetching.device.run(took).stdout.split())
    figures["a look that finds nothing new"] = f"{(end_us - begin_us) / 1e6:.1f} s"


def test_who_fetches_may_speak_to_the_agent_and_nobody_else_may(fetching):
    knock = "import socket; socket.socket(socket.AF_UNIX).connect('/run/edge-agent.sock')"

    codes = {
        user: fetching.device.run(["runuser", "-u", user, "--", "python3", "-c", knock], check=False).returncode
        for user in ("edge-pull", "edge-runtime", "edge-build", "nobody")
    }

    assert codes == {"edge-pull": 0, "edge-runtime": 1, "edge-build": 1, "nobody": 1}
    assert fetching.device.run("runuser -u edge-pull -- sudo -n true", check=False).returncode != 0


def test_a_device_whose_only_way_out_is_the_registry_comes_to_a_new_release_and_back(fetching, shop, figures):
    rules = ["-A OUTPUT -o lo -j ACCEPT", "-A INPUT -i lo -j ACCEPT"]
    rules += [f"-A OUTPUT -p tcp --dport {fetching.registry.port} -j ACCEPT", "-P OUTPUT DROP", "-P INPUT DROP"]
    rules += ["-A INPUT -m state --state ESTABLISHED -j ACCEPT"]
    bad = shop.signer.variant(shop.second, pipeline=without_secret, health=SHORT)
    for rule in rules:
        iptables(fetching, rule)
    try:
        # The broker is out of reach, too: a release that is judged before the service knows would be blamed for it.
        health = "cat /run/edge-runtime/health.json"
        wait_until(
            lambda: json.loads(fetching.device.run(health).stdout)["mqtt_connected"] is False,
            what="the service knows that its broker is gone",
            timeout_s=180,
        )
        fetching.publish(shop.second)
        fetching.look()
        came_to = fetching.site.current()
        fetching.publish(bad)
        fetching.look()
        went_back_to = fetching.site.current()
        fetching.wait_said(f"rolled-back, {bad.manifest.release}")
        fetching.look()
    finally:
        for rule in ("-P OUTPUT ACCEPT", "-P INPUT ACCEPT", "-F"):
            iptables(fetching, rule)

    assert came_to == went_back_to == shop.second.manifest.release
    fetching.wait_said(f"still {bad.manifest.release}, which was rolled back here")
    fetching.site.wait_serving(shop.second.manifest.release)


def iptables(fetching: Fetching, rule: str) -> None:
    ip("netns", "exec", fetching.device.cable.name, "iptables", "-w", *rule.split())


def test_a_pull_that_is_killed_holds_nothing_and_the_next_one_ends_it(fetching, shop, retrained):
    newer = shop.signer.variant(retrained, health=QUICK)  # another file may have made `retrained` before `second`
    fetching.publish(newer)

    def is_under_way():
        fetching.device.run(f"systemctl start --no-block {PULL}")  # one that was at work already may have looked before
        return fetching.site.state()["phase"] != "idle" or any(fetching.site.file("incoming").iterdir())

    wait_until(is_under_way, what="the pull is under way", timeout_s=120)
    fetching.device.run(f"systemctl kill -s KILL {PULL}", check=False)
    fetching.site.seconds_until_free()
    wait_until(lambda: fetching.site.state()["phase"] == "idle", what="what was begun has ended", timeout_s=240)

    fetching.look()

    assert fetching.site.current() == newer.manifest.release, fetching.said()


def test_a_push_and_a_pull_have_one_history(fetching, shop):
    newer = shop.signer.variant(shop.first, health=QUICK)  # a release of its own: the same one would replace `first`

    pushed = fetching.site.push(newer)
    fetching.look()

    assert (pushed.code, pushed.result["event"]) == (0, "committed"), pushed.told
    assert fetching.site.current() == newer.manifest.release


def test_a_look_that_is_refused_reaches_the_pull_message_and_status(fetching, shop, tmp_path):
    stranger = Signer(ssh_key(tmp_path, "stranger"), tmp_path).variant(shop.first, health=QUICK)
    fetching.publish(stranger)

    fetching.look()

    code = "verify.signature.signer"
    wait_until(lambda: fetching.site.watcher.last_look().get("code") == code, what=f"pull tells {code}", timeout_s=60)
    assert fetching.site.watcher.last_look()["release"] == stranger.manifest.release
    assert fetching.site.status()["look"]["code"] == code


def test_undo_takes_the_units_and_users_of_the_pull_as_well(fetching):
    done = provision(fetching.device, "--undo", "--purge")

    assert done.returncode == 0, done.stderr
    left = "ls /etc/systemd/system | grep -e edge-pull -e edge-agent; getent passwd edge-pull; ls /run/edge-agent.sock"
    assert fetching.device.run(left, check=False).stdout == ""

"""A rollout whose first ring is a booted device; the second is one that is nothing but its words at the broker."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from edge.deploy.publish.publish import publish
from tests.lab.provisioning import provision
from tests.lab.site import open_site
from tests.lab.test_pull import Fetching
from tests.lab.test_push_bad_releases import SHORT, without_secret
from tests.support.field_fleet import FieldFleet
from tests.support.registry import LOGIN, Registry
from tests.support.wait import wait_until

PIPELINE = """\
version: 1
model: {{onnx: gates.onnx}}
streams: [{{id: gate, uri: "rtsp://camera/main"}}]
mqtt: {{host: {host}, port: {port}, site: workshop, tls: false}}
"""


class Rolling(Fetching):
    """A site whose device is of the ring `canary`, and a workstation that types `edge-deploy rollout`."""

    @property
    def known_as(self) -> str:
        return f"workstation:{self.registry.port}/farms/gates"

    def type(self, verb: str, *words: str, release: str = "", as_whom: str = "desk") -> subprocess.CompletedProcess:
        home = self.site.home / as_whom
        home.mkdir(exist_ok=True)
        (home / "gates.onnx").touch()
        (home / "gates.yaml").write_text(PIPELINE.format(host=self.site.broker.host, port=self.site.broker.port))
        (home / "login").write_text(f"{LOGIN.user}:{LOGIN.password}\n")
        where = f"{self.registry.host}/farms/gates{release and ':'}{release}"
        given = ["--login", str(home / "login"), "--ca", str(self.registry.certificates.ca)]
        if verb != "stop":
            given += ["--pipeline", str(home / "gates.yaml"), "--known-as", self.known_as]
        command = [sys.executable, "-m", "edge.cli.edge_deploy", "rollout", verb, where, *given, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    def put(self, bundle, *rings: str) -> str:
        for ring in rings or (None,):
            tag = None if ring is None else f"stable-{ring}"
            publish(bundle, self.registry.reference(tag), login=LOGIN, ca=self.registry.certificates.ca)
        return bundle.manifest.release

    def told(self) -> dict:
        return json.loads(self.type("status", "--json").stdout)

    def wait_standing(self, standing: str) -> None:
        """Wait until the booted device, which is the only one of its ring, is heard to stand so."""
        wait_until(
            lambda: [one["standing"] for one in self.told()["rings"][0]["devices"].values()] == [standing],
            what=f"the device is heard to be {standing}",
            timeout_s=120,
        )


@pytest.fixture(scope="module")
def rolling(shop, provisioned_layer, tmp_path_factory) -> Iterator[Rolling]:
    if shutil.which("docker-registry") is None:
        pytest.skip("docker-registry is not installed")
    folder = tmp_path_factory.mktemp("rolling")
    with (
        open_site(folder / "site", port=shop.port, layers=[provisioned_layer]) as site,
        Registry(folder / "registry", host="", also=("workstation",)) as registry,
    ):
        made = Rolling(site, registry)
        secret = "/etc/edge-deploy/credentials/registry-login"
        site.device.run(f"install -m 0600 /dev/stdin {secret}", content=f"{LOGIN.user}:{LOGIN.password}\n")
        where = ("--pull-from", made.known_as, "--ring", "canary")
        done = provision(site.device, *where, "--registry-ca", str(registry.certificates.ca))
        assert done.returncode == 0, done.stderr
        first = made.put(shop.first, "canary", "all")
        made.look()
        site.wait_serving(first)
        fleet = FieldFleet(site.broker.port, made.known_as, host=site.broker.host, site="lab")
        fleet.there("far-01", ring="all")
        fleet.switched("far-01", release=first)
        yield made


def test_a_release_goes_on_when_the_booted_device_has_committed_it(rolling, shop):
    new = rolling.put(shop.second)
    started = rolling.type("start", "--rings", "canary,all", "--hold", "0s", release=new)
    assert started.returncode == 0, started.stdout + started.stderr
    assert rolling.type("advance").returncode == 10  # nobody has it yet

    rolling.look()
    rolling.wait_standing("committed")
    reached, moved = rolling.type("advance"), rolling.type("advance", as_whom="job")

    assert rolling.site.current() == new, rolling.said()
    assert (reached.returncode, moved.returncode) == (10, 0), moved.stdout + moved.stderr
    assert [ring["name"] for ring in rolling.told()["rings"] if ring["began_at"]] == ["canary", "all"]
    assert rolling.type("stop").returncode == 0


def test_a_release_that_fails_on_the_booted_device_stops_by_itself_and_reaches_nobody_else(rolling, shop):
    before = rolling.site.current()
    bad = shop.signer.variant(shop.second, pipeline=without_secret, health=SHORT)
    release = rolling.put(bad)
    started = rolling.type("start", "--rings", "canary,all", "--hold", "0s", release=release)
    assert started.returncode == 0, started.stdout + started.stderr

    rolling.look()
    watched = rolling.type("watch", "--every", "2")

    assert watched.returncode == 11, watched.stdout + watched.stderr
    assert "1 of 1 devices have failed" in watched.stdout
    assert rolling.site.current() == before, rolling.said()
    told = rolling.told()
    assert (told["phase"], [bool(ring["began_at"]) for ring in told["rings"]]) == ("stopped", [True, False])
    rolling.look()
    assert rolling.site.current() == before, rolling.said()

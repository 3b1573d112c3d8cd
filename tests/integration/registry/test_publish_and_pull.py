"""Releases from a workstation through a real OCI registry to a device's real agent."""

import json
import re
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from edge.bundle.manifest import Role
from edge.deploy.publish import publish
from edge.registry.artifact import decode_artifact
from edge.registry.client import RegistryClient
from edge.registry.login import Login
from edge.registry.reference import Reference
from edge.runtime.pull.pull import fetch_release
from edge.transport.channel import ChildChannel
from tests.support.pulling import put
from tests.support.raised import error_of
from tests.support.registry import LOGIN, on, saying
from tests.support.tcp_proxy import LinkProxy
from tests.support.wait import wait_until

pytestmark = pytest.mark.slow_but(
    "test_a_published_release_is_fetched_built_judged_and_serves",
    "test_a_release_that_was_rolled_back_is_not_tried_again_until_the_tag_names_another",
    "test_a_wrong_login_is_refused_at_both_ends_by_name",
    "test_only_files_that_the_device_has_not_are_fetched",
    "test_who_went_back_is_asked_first_whatever_the_record_says",
    "test_who_went_back_is_not_overruled_by_what_a_registry_says_of_its_digest",
    reason="further pulls over real registries",
)


def asked(registry) -> list[str]:
    """Return what devices have asked for, without what was refused for want of a login."""
    lines = re.findall(r'"(HEAD|GET) /v2/farms/gates/(\S+) HTTP/1.1" (\d+) \d+ "" "edge-deploy"', registry.log)
    return [f"{method} {path}" for method, path, status in lines if status in ("200", "206")]


def test_a_published_release_is_fetched_built_judged_and_serves(registry, device, root):
    bundle = root.bundle("one")
    published = put(registry, bundle)

    pulled = device.pull()

    assert (pulled.outcome.result, pulled.outcome.exit_code) == ("committed", 0), pulled.outcome
    assert device.current == bundle.manifest.release
    assert (pulled.record.digest, pulled.record.release) == (published.digest, bundle.manifest.release)
    assert published.tags == (bundle.manifest.release, "stable-all")


def test_a_release_that_had_its_verdict_costs_one_question_of_less_than_two_kilobytes(registry, device, root):
    put(registry, root.bundle("one"))
    with LinkProxy(registry.port) as counting:
        device.reference = Reference(f"localhost:{counting.port}", "farms/gates", "stable-all")
        device.pull()
        before, refused, passed_bytes = len(asked(registry)), registry.log.count(" 401 "), counting.passed_bytes

        pulled = device.pull()

        assert (pulled.outcome.result, pulled.record.result) == ("unchanged", "committed")
        assert asked(registry)[before:] == ["HEAD manifests/stable-all"]
        assert registry.log.count(" 401 ") == refused  # what it asks for is known by now
        assert 500 < counting.passed_bytes - passed_bytes < 2000


def test_only_files_that_the_device_has_not_are_fetched(registry, device, root):
    first, second = root.bundle("one", model=b"m" * 100_000), root.bundle("two", sequence=2, model=b"m" * 100_000)
    put(registry, first)
    device.pull()
    published = put(registry, second)
    before = len(asked(registry))

    assert device.pull().outcome.result == "committed"

    model, pipeline = (one.sha256 for one in second.manifest.files)
    fetched = [line for line in asked(registry)[before:] if "blobs" in line]
    assert f"GET blobs/sha256:{pipeline}" in fetched
    assert f"GET blobs/sha256:{model}" not in fetched
    assert len(fetched) == 3  # signed manifest, signature, pipeline
    assert published.bytes_sent < 5000 < published.bytes_total


def test_a_device_where_nothing_serves_takes_what_it_had_once_again(registry, device, root):
    put(registry, root.bundle("one"))
    known = device.pull().record
    root.layout.current.unlink()
    device.record = known

    assert device.pull().outcome.result == "committed"


def test_a_release_that_was_rolled_back_is_not_tried_again_until_the_tag_names_another(registry, device, root):
    old, bad, good = (root.bundle(name, sequence=number) for number, name in enumerate(("old", "bad", "good"), 1))
    put(registry, old)
    device.pull()
    root.script(trial="refuse")
    put(registry, bad)
    assert device.pull().outcome.result == "rolled-back"
    root.script(trial="commit")

    again = device.pull()

    assert (again.outcome.result, again.record.result) == ("unchanged", "rolled-back")
    assert device.current == old.manifest.release
    put(registry, good)
    assert device.pull().outcome.result == "committed"
    assert device.current == good.manifest.release


def test_the_tag_of_an_older_release_does_no_harm_and_says_so(registry, device, root):
    old, new = root.bundle("old"), root.bundle("new", sequence=2)
    for one in (old, new):
        put(registry, one)
        device.pull()
    put(registry, old)

    outcome = device.pull().outcome

    assert (outcome.result, outcome.code) == ("refused", "verify.downgrade"), outcome
    assert device.current == new.manifest.release


def test_a_wrong_login_is_refused_at_both_ends_by_name(registry, device, root):
    wrong = Login("edge", "guessed")
    error = error_of(
        publish, root.bundle("one"), registry.reference("stable-all"), login=wrong, ca=registry.certificates.ca
    )
    device.login = wrong

    outcome = device.pull().outcome

    assert (error.code, outcome.code, outcome.exit_code) == ("registry.denied", "registry.denied", 12)
    assert "guessed" not in f"{error}{outcome}"


def test_who_may_pull_reads_the_addresses_of_cameras(registry, root):
    pipeline = b'streams: [{id: gate, uri: "rtsp://10.0.0.7/main", credential: gate-camera}]\n'
    parts = {"model.onnx": (Role.MODEL, b"m"), "pipeline.yaml": (Role.PIPELINE, pipeline)}
    put(registry, root.bundle_of(parts, "one", sequence=1))
    with closing(RegistryClient(registry.reference("stable-all"), login=LOGIN, ca=registry.certificates.ca)) as client:
        artifact = decode_artifact(client.manifest("stable-all")[0], where="stable-all")
        release = fetch_release(client, artifact, threading.Event())
        (file,) = release.manifest.files_of(Role.PIPELINE)
        with release.opened(file) as content:
            assert content.read() == pipeline


def test_the_login_that_docker_keeps_is_used(registry, root, tmp_path, monkeypatch):
    auth = "ZWRnZTpzZWNyZXQtb2YtdGhlLWxhYg=="  # edge:secret-of-the-lab
    (tmp_path / "config.json").write_text(f'{{"auths": {{"{registry.host}": {{"auth": "{auth}"}}}}}}')
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    done = publish(root.bundle("one"), registry.reference(), ca=registry.certificates.ca)

    assert len(done.tags) == 1


@pytest.mark.parametrize("is_ca_known", [True, False])
def test_a_registry_that_is_not_there_or_not_to_be_trusted_is_named_soon(registry, root, device, is_ca_known):
    put(registry, root.bundle("one"))
    if is_ca_known:
        registry.kill()
    else:
        device.ca = None

    outcome = device.pull().outcome

    assert outcome.code == ("registry.unreachable" if is_ca_known else "registry.tls"), outcome
    error = error_of(publish, root.bundle("one"), registry.reference(), login=LOGIN, ca=device.ca)
    assert error.code == outcome.code


def test_a_bundle_whose_file_has_changed_gets_no_tag(registry, device, root):
    bundle = root.bundle("one")
    (Path(bundle.path) / "model.onnx").write_bytes(b"another model")

    error = error_of(put, registry, bundle)

    assert error.code == "bundle.file"
    assert device.pull().outcome.code == "registry.missing"


@pytest.fixture
def gone_back(led, odd, root):
    """A device whose person went back by hand from the second release to the first; the tag names the second."""
    for sequence, name in enumerate(("first", "second"), 1):
        odd.take(root.bundle(name, sequence=sequence))
        assert led.pull().outcome.result == "committed"
    root.go_back()
    return led


without_digest = on("", saying(200), "HEAD")
with_another = on("", saying(200, Docker_Content_Digest="sha256:" + "0" * 64), "HEAD")


@pytest.mark.parametrize("lie", [without_digest, with_another], ids=["none", "another"])
def test_who_went_back_is_not_overruled_by_what_a_registry_says_of_its_digest(gone_back, odd, root, lie):
    before, odd.meddle = gone_back.current, lie

    pulled = gone_back.pull()

    assert (pulled.outcome.result, pulled.record.result) == ("unchanged", "rolled-back")
    assert gone_back.current == before == root.bundle("first").manifest.release
    assert gone_back.pull().outcome.result == "unchanged"


def test_who_goes_back_from_a_release_whose_pull_did_not_see_its_end_is_not_overruled(led, odd, root):
    odd.take(root.bundle("first"))
    led.pull()
    new = root.bundle("second", sequence=2).manifest.release
    odd.take(root.bundle("second", sequence=2))
    root.script(trial_s=8.0)

    blind = led.pull(deadline_s=3.0)

    assert blind.outcome.result not in ("committed", "rolled-back"), blind
    assert led.pull().outcome.code == "lock.trial"
    wait_until(lambda: root.device.state().phase.value == "idle", what="the trial has ended")
    assert led.current == new
    root.script()
    root.go_back()
    assert led.pull().outcome.result == "unchanged"
    assert led.current == root.bundle("first").manifest.release


RECORDS = {  # by those of the two pulls
    "none": lambda before, last: None,
    "of a pull that was killed in the trial": lambda before, last: before,
    "after times in which the registry was away": lambda _, last: replace(
        last, result="failed", code="registry.failed"
    ),
    "nothing settled": lambda before, last: replace(last, settled=None),
    "of elsewhere": lambda before, last: replace(last, reference="a.b/c:stable-all"),
    "of another release": lambda before, last: replace(last, release="0" * 12),
}


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("kept", RECORDS)
def test_who_went_back_is_asked_first_whatever_the_record_says(led, odd, root, is_named, kept):
    first, second = root.bundle("first"), root.bundle("second", sequence=2)
    records = []
    for one in (first, second):
        odd.take(one)
        assert led.pull().outcome.result == "committed"
        records.append(led.record)
    root.go_back(first.manifest.release if is_named else None)
    led.record = RECORDS[kept](*records)

    assert (led.pull().outcome.result, led.current) == ("unchanged", first.manifest.release)

    led.record = None
    third = root.bundle("third", sequence=3)
    odd.take(third)
    assert led.pull().outcome.result == "committed"


def test_what_a_person_has_left_meanwhile_is_refused_to_who_fetches_and_taken_from_a_person(led, odd, root):
    first, second = root.bundle("first"), root.bundle("second", sequence=2)
    for one in (first, second):
        assert root.push(one).result == "committed"
    root.go_back()

    fetched = root.push(second, lambda: ChildChannel([*root.command, "for-pull"]), is_fetched=True)

    assert (fetched.result, fetched.code) == ("refused", "preflight.left")
    assert root.push(second).result == "committed"


def test_the_same_release_in_another_wrapping_is_the_same_release(gone_back, odd):
    before = gone_back.current
    told = json.loads(odd.tags["stable-all"])
    odd.tags["stable-all"] = json.dumps({**told, "annotations": {"a": "b"}}).encode()

    assert gone_back.pull().outcome.result == "unchanged"
    assert gone_back.current == before

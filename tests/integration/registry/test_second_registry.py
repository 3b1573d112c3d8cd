"""Releases through a registry of another making: no login, no digest in its answers, uploads elsewhere, fixed tags.

It is strict about types, too: who asks for a blob as a manifest gets 406.
"""

from contextlib import closing

import pytest

from tests.support.django_registry import PYTHON, DjangoRegistry
from tests.support.manifests import ssh_key
from tests.support.pulling import put
from tests.support.raised import code_of, error_of
from tests.support.stating import StatingClock, StatingDesk, published

pytestmark = [pytest.mark.integration, pytest.mark.slow(reason="asks django-oci, which only make test-rest installs")]


@pytest.fixture
def registry(tmp_path):
    if not PYTHON.exists():
        pytest.skip("django-oci is not installed; run: bash .ci/setup rest")
    with DjangoRegistry(tmp_path / "registry") as running:
        yield running


def test_a_release_is_published_fetched_judged_and_serves_and_the_next_look_fetches_no_file(registry, device, root):
    bundle = root.bundle("one")
    done = put(registry, bundle)

    pulled = device.pull()

    assert pulled.outcome.result == "committed", pulled.outcome
    assert (device.current, pulled.record.digest) == (bundle.manifest.release, done.digest)
    before = registry.log.count('"GET /v2/farms/gates/blobs/')

    assert device.pull().outcome.result == "unchanged"
    assert registry.log.count('"GET /v2/farms/gates/blobs/') == before


def test_only_what_is_new_is_sent_and_fetched(registry, device, root):
    first, second = root.bundle("one", model=b"m" * 100_000), root.bundle("two", sequence=2, model=b"m" * 100_000)
    put(registry, first)
    device.pull()
    sent = put(registry, second, "stable-next")
    device.reference = registry.reference("stable-next")

    assert device.pull().outcome.result == "committed"

    model = next(one.sha256 for one in second.manifest.files if one.path == "model.onnx")
    assert registry.log.count(f"GET /v2/farms/gates/blobs/sha256:{model}") == 1
    assert sent.bytes_sent < 5000 < sent.bytes_total


def test_a_tag_that_the_registry_takes_and_does_not_move_is_told(registry, device, root):
    old, new = root.bundle("old"), root.bundle("new", sequence=2)
    put(registry, old)

    error = error_of(put, registry, new)

    assert error.code == "registry.answer"
    assert "farms/gates:stable-all: the registry has taken it and names something else" in error.problem
    device.pull()
    assert device.current == old.manifest.release


def test_a_ring_that_the_registry_does_not_move_is_not_taken_for_promoted(registry, root, tmp_path):
    with closing(StatingDesk(registry, ssh_key(tmp_path, "promoter"), StatingClock())) as desk:
        desk.promoter.promote(published(registry, desk, root.bundle("old")), "canary")
        new = published(registry, desk, root.bundle("new", sequence=2))

        assert code_of(desk.promoter.promote, new, "canary") == "registry.answer"

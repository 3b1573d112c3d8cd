"""A way back for a ring: what was withdrawn is kept without an error, and the old release comes again, signed anew."""

import shutil
from datetime import datetime, timezone

import pytest

from edge.deploy.packing.bundle import AgainOptions, make_again
from edge.device.state import read_counters
from edge.registry.artifact import with_statement
from tests.support.manifests import allow, ssh_key
from tests.support.pulling import beside, published
from tests.support.raised import code_of

pytestmark = pytest.mark.slow_but(
    "test_after_a_withdrawal_a_device_keeps_its_release_and_says_so_until_the_old_one_comes_again",
    "test_another_release_of_an_equal_sequence_is_refused_by_devices_and_not_promoted",
    "test_what_is_signed_again_counts_by_its_new_signature",
    "test_the_same_content_is_the_same_release_and_nothing_else_is_signed",
    reason="further pulls over real registries",
)


def again(root, bundle, **options):
    """Return a bundle as `edge-deploy bundle --again` signs it."""
    values = {"out": root.directory / "again", "created_at": datetime.now(timezone.utc), "key": root.key, **options}
    return make_again(AgainOptions(bundle=bundle.path, **values)).bundle


def test_after_a_withdrawal_a_device_keeps_its_release_and_says_so_until_the_old_one_comes_again(
    registry, root, desk, old, new, device
):
    desk.promoter.promote(old, "all")
    assert device.pull().outcome.result == "committed"
    desk.promoter.promote(new, "all")
    assert device.pull().outcome.result == "committed"
    serves = new.manifest.release
    desk.promoter.withdraw(serves, "stable", "overheats")

    for _ in range(2):
        kept = device.pull()
        assert (kept.outcome.result, kept.outcome.release, kept.outcome.exit_code) == ("kept", serves, 0)
        assert (kept.record.result, kept.record.code, kept.outcome.hint) == ("kept", None, None)

    desk.promoter.promote(old, "all")
    for _ in range(2):
        kept = device.pull()
        assert (kept.outcome.result, kept.outcome.release, kept.outcome.exit_code) == ("kept", serves, 0)
        assert serves in kept.record.problem
        assert "downgrade" not in f"{kept.outcome}{kept.record}"

    newer = published(registry, desk, again(root, root.bundle("old")))
    assert newer.manifest.release == old.manifest.release
    desk.promoter.promote(newer, "all")
    assert device.pull().outcome.result == "committed"
    assert device.current == old.manifest.release
    assert device.pull().outcome.result == "unchanged"


def test_a_ring_goes_back_and_forth_on_devices_that_nobody_has_touched(registry, root, desk, old, new, device):
    sequence = 2
    for release, name in ((old, None), (new, None), (old, "old"), (new, "new"), (old, "old")):
        if name is not None:
            sequence += 1
            release = published(registry, desk, again(root, root.bundle(name), sequence=sequence))
        desk.promoter.promote(release, "all")
        assert device.pull().outcome.result == "committed"
        assert device.current == release.manifest.release


@pytest.mark.parametrize("serves", [True, False], ids=["it serves", "another one serves"])
def test_what_is_signed_again_counts_by_its_new_signature(registry, root, desk, old, new, device, tmp_path, serves):
    for release in (old,) if serves else (old, new):
        desk.promoter.promote(release, "all")
        device.pull()
    before = root.device.state().last
    key = ssh_key(tmp_path, "next")
    newer = published(registry, desk, again(root, root.bundle("old"), key=key))
    counting = root.layout.allowed_signers.read_text()
    root.layout.allowed_signers.write_text("".join(one for one in counting.splitlines(True) if "promoter" in one))
    allow(root.layout.allowed_signers, key)
    desk.promoter.promote(newer, "all")

    assert device.pull().outcome.result == ("unchanged" if serves else "committed")
    assert device.pull().record.result == ("unchanged" if serves else "committed")

    assert (root.device.state().last == before) is serves  # no trial for what serves
    assert read_counters(root.layout, root.device.durable.files).sequences == {"stable": newer.manifest.sequence}
    status = device.status()
    (kept,) = (one for one in status.releases if one.release == status.current)
    assert (kept.sequence, kept.distrust) == (newer.manifest.sequence, None)


def test_a_tag_of_nothing_that_nobody_has_stated_keeps_no_device_in_silence(desk, old, new, device):
    desk.promoter.promote(old, "all")
    assert device.pull().outcome.result == "committed"
    stated = beside(desk.registry.manifest("stable-all")[0])

    desk.registry.tag(desk.desk.nothing(), "stable-all")
    assert device.pull().outcome.code == "verify.ring.absent"

    desk.registry.tag(with_statement(desk.desk.nothing(), *stated), "stable-all")  # a word for a release beside nothing
    assert device.pull().outcome.code == "registry.missing"


def test_another_release_of_an_equal_sequence_is_refused_by_devices_and_not_promoted(registry, root, desk, old, device):
    other = published(registry, desk, root.bundle("other", sequence=1))
    desk.promoter.promote(old, "all")
    assert device.pull().outcome.result == "committed"

    assert code_of(desk.promoter.promote, other, "all") == "request.release"
    pushed = root.push(root.bundle("other", sequence=1))

    assert (pushed.result, pushed.code) == ("refused", "verify.downgrade.equal")
    assert root.push(root.bundle("old")).result == "unchanged"


def test_the_same_content_is_the_same_release_and_nothing_else_is_signed(root):
    old = root.bundle("old", expires_at="2026-11-27T12:00:00Z")
    made = again(root, old, created_at=datetime(2026, 11, 25, tzinfo=timezone.utc))

    assert made.manifest.release == old.manifest.release
    assert (made.manifest.sequence, made.manifest.expires_at) == (1795564800, "2026-12-02T00:00:00Z")
    assert made.manifest.files == old.manifest.files
    assert again(root, made, created_at=datetime(2026, 11, 25, tzinfo=timezone.utc)).manifest.sequence == 1795564801

    assert code_of(again, root, made, sequence=1795564800) == "bundle.sequence"
    back = root.bundle("back", downgrade_from=3, targets=("gate-01",), expires_at="2026-11-27T12:00:00Z")
    assert code_of(again, root, back) == "bundle.downgrade"
    (old.path / "model.onnx").write_bytes(b"another")
    assert code_of(again, root, old) == "bundle.file"
    shutil.rmtree(made.path)

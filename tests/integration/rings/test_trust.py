"""Whose signatures count, by pull: real registry, real ssh-keygen, real ssh-agent."""

from contextlib import closing
from datetime import datetime, timezone

import pytest

from edge.bundle.statement import decode_chain, encode_chain, latest_of
from edge.deploy.provision.keys import TrustChange, next_chain, public_of, read_public_key
from edge.device.state import open_sealed
from edge.errors import DeployError
from edge.runtime.agent.watch import takes
from edge.runtime.trial.trust import require_known, require_trusted, take_trust, trust_of
from tests.support.command_line import typed
from tests.support.manifests import ssh_agent, ssh_key
from tests.support.pulling import StatingClock, StatingDesk, into_ring, published, pulling_from
from tests.support.raised import code_of

NOW = datetime.now(timezone.utc)


def public(key):
    return read_public_key(key.with_name(f"{key.name}.pub"))


class Keys:
    def __init__(self, folder, signer, *, root="root-key"):
        self.root, self.promoter, self.signer = ssh_key(folder, root), ssh_key(folder, "promoter"), signer
        added = ((public(signer), ("edge-release",)), (public(self.promoter), ("edge-ring",)))
        self.first = next_chain((), TrustChange(added=added), root=self.root, now=NOW)

    def after(self, chain, *, root=None, new_root=None, **change):
        return next_chain(chain, TrustChange(**change), root=root or self.root, new_root=new_root, now=NOW)


@pytest.fixture
def keys(tmp_path, root):
    return Keys(tmp_path, root.key)


@pytest.fixture
def rooted(root, keys):
    """A device that provision has given a root."""
    root.layout.trust_root.write_text(public_of(keys.root) + "\n")
    root.layout.first_trust.write_bytes(encode_chain(keys.first))
    return root


@pytest.mark.promised(reason="keys travel by pull")
def test_a_stolen_signing_key_is_revoked_at_the_next_look(registry, rooted, keys, tmp_path):
    into_ring(rooted, registry, keys.promoter, "all")
    rooted.layout.allowed_signers.write_text("")  # what counts is the word of the root
    with closing(StatingDesk(registry, keys.promoter, StatingClock())) as desk:
        device = pulling_from(registry, rooted)
        old = published(registry, desk, rooted.bundle("old"))
        desk.promoter.promote(old, "all")
        assert device.pull().outcome.result == "committed"
        other = ssh_key(tmp_path, "other")
        change = {"revoked": [public(rooted.key)], "added": [(public(other), ("edge-release",))]}
        desk.desk.tell_trust(encode_chain(keys.after(keys.first, **change)))
        desk.promoter.promote(published(registry, desk, rooted.bundle("stolen", sequence=2)), "all")

        assert device.pull().outcome.code == "verify.signature.revoked"
        assert device.current == old.manifest.release
        with pytest.raises(DeployError):
            require_trusted(rooted.device, old.manifest.release)  # serves, and is chosen no more

        rooted.key = other
        desk.promoter.promote(published(registry, desk, rooted.bundle("new", sequence=3)), "all")
        assert device.pull().outcome.result == "committed"


def test_who_counts_is_taken_only_upwards(rooted, keys):
    second = keys.after(keys.first)
    third = keys.after(second)

    assert take_trust(rooted.device, encode_chain(third)) == 3
    assert takes(rooted.device).revocation_list.age_s >= 0  # that of the root, which has no list beside it
    assert code_of(take_trust, rooted.device, encode_chain(second)) == "verify.trust.version"
    assert take_trust(rooted.device, encode_chain(third)) == 3
    assert trust_of(rooted.device).version == 3


def test_an_older_chain_is_not_published_over_a_newer_one_and_a_strangers_is_written_over(registry, keys, tmp_path):
    (tmp_path / "other").mkdir()
    stranger = Keys(tmp_path / "other", keys.signer, root="stranger")
    second = keys.after(keys.first)
    third = keys.after(second)
    with closing(StatingDesk(registry, keys.promoter, StatingClock())) as stating:
        tell = stating.desk.tell_trust
        tell(encode_chain(stranger.after(stranger.after(stranger.first))))
        tell(encode_chain(keys.first))
        tell(encode_chain(third))

        assert code_of(tell, encode_chain(second)) == "verify.trust.version"
        assert code_of(tell, encode_chain(keys.after(second, removed=[public(keys.signer)]))) == "verify.trust.version"
        tell(encode_chain(third))  # again
        tell(encode_chain(keys.after(third)))


def test_a_stranger_says_nobody_who_counts(rooted, keys, tmp_path):
    (tmp_path / "other").mkdir()
    stranger = Keys(tmp_path / "other", rooted.key, root="stranger")
    forged = stranger.after(stranger.first)

    assert code_of(take_trust, rooted.device, encode_chain(forged)) == "verify.trust.signature"
    assert trust_of(rooted.device).version == 1


def test_a_new_root_is_followed_where_both_have_signed_also_by_one_who_was_off_for_two_of_them(rooted, keys, tmp_path):
    second, third = ssh_key(tmp_path, "second"), ssh_key(tmp_path, "third")
    chain = keys.after(keys.after(keys.first), new_root=second)
    chain = keys.after(chain, root=second)
    chain = keys.after(chain, root=second, new_root=third)
    chain = keys.after(chain, root=third)

    assert take_trust(rooted.device, encode_chain(chain)) == 6
    assert trust_of(rooted.device).root == public_of(third)
    assert take_trust(rooted.device, encode_chain(keys.after(chain, root=third))) == 7
    assert trust_of(rooted.device).version == 7

    with pytest.raises(DeployError):
        keys.after(chain, root=keys.root)


def test_a_new_root_that_the_old_one_did_not_sign_is_not_followed(rooted, keys, tmp_path):
    second = ssh_key(tmp_path, "second")
    (taken,) = keys.after(keys.first, new_root=second)
    for signatures in (taken.signatures[:1], taken.signatures[1:]):
        assert (
            code_of(take_trust, rooted.device, encode_chain([type(taken)(taken.content, signatures)]))
            == "verify.trust.signature"
        )


def test_what_is_damaged_lets_nothing_be_taken_and_what_serves_goes_on(rooted, keys):
    assert rooted.push(rooted.bundle("one")).result == "committed"
    take_trust(rooted.device, encode_chain(keys.after(keys.first)))
    assert open_sealed(rooted.layout.trust.read_bytes())
    rooted.layout.trust.write_bytes(b"half")

    assert rooted.push(rooted.bundle("two", sequence=2)).code == "device.trust"
    assert rooted.device.releases.current() is not None


def test_a_key_that_is_removed_has_signed_what_goes_on_serving(rooted, keys):
    bundle = rooted.bundle("one")
    assert rooted.push(bundle).result == "committed"

    take_trust(rooted.device, encode_chain(keys.after(keys.first, removed=[public(rooted.key)])))

    assert rooted.push(rooted.bundle("two", sequence=2)).code == "verify.signature.signer"
    assert rooted.device.releases.current() == bundle.manifest.release
    assert require_known(rooted.device, bundle.manifest.release).withdrawn is not None


def test_a_release_whose_signer_a_document_revokes_goes_on_serving_as_withdrawn(rooted, keys):
    bundle = rooted.bundle("one")
    assert rooted.push(bundle).result == "committed"

    take_trust(rooted.device, encode_chain(keys.after(keys.first, revoked=[public(rooted.key)])))

    assert require_known(rooted.device, bundle.manifest.release).withdrawn.code == "verify.signature.revoked"


def test_a_key_that_does_not_count_cannot_be_removed(keys, tmp_path):
    stranger = ssh_key(tmp_path, "stranger")

    assert code_of(keys.after, keys.first, removed=[public(stranger)]) == "request.key"
    assert keys.after(keys.first, revoked=[public(stranger)])[-1].document.version == 2


@pytest.mark.parametrize(
    ("change", "count", "lacks"),
    [
        ("--revoke device/signer.pub --signer next.pub", 2, []),
        ("--revoke device/signer.pub", 1, ["--signer"]),
        ("--revoke promoter.pub", 1, ["no ring gets", "--promoter"]),
        ("--remove promoter.pub", 1, ["decides alone", "--promoter"]),
        ("--revoke next.pub --signer next.pub", None, ["next", "revoked"]),
        ("--remove promoter.pub --promoter promoter.pub", None, ["promoter", "removed"]),
    ],
)
def test_how_many_count_is_told_with_what_is_missing_and_a_contradiction_is_refused(
    keys, tmp_path, change, count, lacks
):
    ssh_key(tmp_path, "next")
    (tmp_path / "trust.json").write_bytes(encode_chain(keys.first))
    asked = ("trust.json", "-o", "next.json", "--root", "root-key", *change.split())

    told = "".join(typed(tmp_path, "trust", "sign", *asked, expected=0 if count else 2))

    assert (f"{count} count" in told, "warning" in told) == (count is not None, bool(count and lacks))
    assert all(one in told for one in lacks)
    assert (tmp_path / "next.json").exists() is (count is not None)


def test_a_revoked_key_is_not_added_by_a_later_version(keys):
    gone = keys.after(keys.first, revoked=[public(keys.signer)])

    assert code_of(keys.after, gone, added=[(public(keys.signer), ("edge-release",))]) == "request.key"


@pytest.mark.parametrize("option", ["--new-root", "--remove"])
def test_a_first_document_takes_nothing_over_and_away(keys, tmp_path, option):
    asked = ("--root", "root-key", option, "promoter.pub")

    _, told = typed(tmp_path, "trust", "sign", "-o", "trust.json", *asked, expected=2)

    assert "TRUST" in told
    assert not (tmp_path / "trust.json").exists()


def test_a_root_in_an_agent_signs_by_its_public_half_as_a_person_types_it(keys, tmp_path, monkeypatch):
    keys_of = ("--root", "root-key.pub", "--signer", "device/signer.pub", "--promoter", "promoter.pub")
    with ssh_agent(tmp_path, monkeypatch, keys.root):
        keys.root.unlink()
        typed(tmp_path, "trust", "sign", "-o", "trust.json", *keys_of)

    chain = decode_chain((tmp_path / "trust.json").read_bytes())
    assert latest_of(chain, root=public_of(keys.root.with_name("root-key.pub"))) == chain

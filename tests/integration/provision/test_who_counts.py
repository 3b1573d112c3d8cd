"""Keys, signers and revocations on a device become those that are named, and nobody locks himself out unasked."""

import subprocess
from datetime import datetime, timezone
from pathlib import Path

import click
import pytest

from edge.bundle.sign import sign, verify
from edge.bundle.statement import encode_chain
from edge.deploy.provision.keys import TrustChange, next_chain, read_public_key
from edge.errors import DeployError
from tests.support.manifests import revocation, ssh_key
from tests.support.sshd import OverlayDevices, needs_root

pytestmark = [
    needs_root,
    pytest.mark.slow_but(
        "test_exactly_takes_all_others_away_as_the_plan_says_and_keeps_what_former_signers_signed",
        reason="further first installations",
    ),
]

KEYS, SIGNERS = "etc/edge-deploy/home/.ssh/authorized_keys", "etc/edge-deploy/allowed_signers"
FORMER, REVOKED = "etc/edge-deploy/former_signers", "etc/edge-deploy/revoked.krl"


@pytest.fixture
def site(tmp_path):
    with OverlayDevices(tmp_path / "site", 1) as devices:
        yield devices


@pytest.fixture
def people(tmp_path):
    """Return the private keys of three people."""
    folder = tmp_path / "people"
    folder.mkdir()
    return [ssh_key(folder, f"{name}@site") for name in ("ana", "mina", "zoe")]


def public(key: Path) -> str:
    return f"{key}.pub"


def lines(site: OverlayDevices, path: str) -> list[str]:
    return (site.root("d-00") / path).read_text().splitlines()


def test_exactly_takes_all_others_away_as_the_plan_says_and_keeps_what_former_signers_signed(site, person, people):
    ana, mina, _ = people
    assert person(site, "all", keys=[public(ana), public(mina)]).return_value == 0
    with (site.root("d-00") / SIGNERS).open("a") as file:
        file.write("# of the site\n")
    before = lines(site, KEYS) + lines(site, SIGNERS)

    planned = person(site, "all", "--exactly", "--plan", keys=[public(ana)])

    assert planned.return_value == 10
    assert planned.stdout.count("take a line from /etc/edge-deploy") == 2
    assert "kept in /etc/edge-deploy/former_signers): mina@site" in planned.stdout
    assert lines(site, KEYS) + lines(site, SIGNERS) == before

    assert person(site, "all", "--exactly", keys=[public(ana)]).return_value == 0

    assert [line.split()[-1] for line in lines(site, KEYS)] == ["ana@site"]
    assert [line.split()[0] for line in lines(site, SIGNERS)] == ["ana@site", "#"]
    assert [line.split()[0] for line in lines(site, FORMER)] == ["mina@site"]
    again = person(site, "all", "--exactly", keys=[public(ana)])
    assert again.return_value == 0
    assert "nothing to change" in again.stdout


def test_a_document_of_a_root_is_enough_at_first_and_what_is_left_out_later_stays(site, person, people, tmp_path):
    ana, mina, root = people
    change = TrustChange(added=[(read_public_key(Path(public(mina))), ("edge-release", "edge-ring"))])
    trust = tmp_path / "trust.json"
    trust.write_bytes(encode_chain(next_chain((), change, root=root, now=datetime.now(timezone.utc))))
    pulls = ("--pull-from", "a.b/gates")

    first = person(site, "all", "--key", public(ana), "--trust", trust, *pulls, "--ring", "canary", keys=[])
    again = person(site, "all", "--pull-from", "a.b/others", keys=[])

    assert (first.return_value, again.return_value) == (0, 0), first.stderr + again.stderr
    assert not (site.root("d-00") / SIGNERS).exists()
    told = ['repository = "a.b/others"', 'channel = "stable"', 'ring = "canary"']
    assert lines(site, "etc/edge-deploy/pull.toml") == told


def test_exactly_also_takes_a_right_away_that_a_line_gives_to_a_key_that_stays(site, person, people):
    ana, _, _ = people
    person(site, "all", keys=[public(ana)])
    assert "edge-release-downgrade" not in lines(site, SIGNERS)[0]
    more = lines(site, SIGNERS)[0].replace('release"', 'release,edge-release-downgrade"')
    (site.root("d-00") / SIGNERS).write_text(f"{more}\n")

    person(site, "all", "--exactly", keys=[public(ana)])

    assert [line for line in lines(site, SIGNERS) if "downgrade" in line] == []
    assert len(lines(site, SIGNERS)) == 1


def test_a_signer_who_is_to_sign_steps_back_too_gets_that_right(site, person, people):
    ana, _, _ = people
    person(site, "all", keys=[public(ana)])

    for _ in range(2):
        assert person(site, "all", "--downgrade-signer", public(ana), keys=[]).return_value == 0

    assert len(lines(site, SIGNERS)) == 2
    assert 'namespaces="edge-release,edge-release-downgrade"' in lines(site, SIGNERS)[1]


@pytest.mark.parametrize("option", ["", 'namespaces="edge-*" ', 'namespaces="edge-release,edge-release-downgrade" '])
def test_a_signer_whose_line_gives_the_right_already_keeps_that_line(site, person, people, option):
    ana, _, _ = people
    person(site, "all", keys=[public(ana)])
    own = lines(site, SIGNERS)[0].replace('namespaces="edge-release" ', option)
    (site.root("d-00") / SIGNERS).write_text(f"{own}\n")

    assert person(site, "all", "--downgrade-signer", public(ana), keys=[]).return_value == 0

    assert lines(site, SIGNERS) == [own]


def test_the_key_that_this_machine_pushes_with_is_not_taken_away_unasked(site, person, people):
    ana, _, _ = people
    mine = str(site.directory / "d-00.pub")  # the IdentityFile that the ssh_config names for the device
    assert person(site, "all", keys=[mine]).return_value == 0
    before = lines(site, KEYS) + lines(site, SIGNERS)

    for words in (("--exactly",), ("--exactly", "--plan")):
        refused = person(site, "all", *words, keys=[public(ana)])
        assert refused.return_value == 2
        assert "request.lockout" in refused.stdout
        assert "--exactly takes the key that this machine uses from /etc/edge-deploy/home" in refused.stdout
    assert lines(site, KEYS) + lines(site, SIGNERS) == before

    assert person(site, "all", "--exactly", keys=[public(ana), mine]).return_value == 0
    assert person(site, "all", "--exactly", "--lock-me-out", keys=[public(ana)]).return_value == 0
    assert [line.split()[-1] for line in lines(site, KEYS)] == ["ana@site"]


@pytest.mark.parametrize("keys", [["--key"], ["--signer"], []])
def test_exactly_has_to_name_who_stays(site, person, people, keys):
    words = [word for option in keys for word in (option, public(people[0]))]

    with pytest.raises(click.UsageError, match="names who stays"):
        person(site, "all", "--exactly", *words, keys=[])


def counts(site: OverlayDevices, key: Path) -> bool:
    """Return whether the device takes what a key has signed."""
    root, content = site.root("d-00"), b"manifest"
    revoked = root / REVOKED
    try:
        verify(
            content,
            sign(content, key),
            allowed_signers=root / SIGNERS,
            revoked=revoked if revoked.exists() else None,
            at=datetime.now(timezone.utc),
        )
    except DeployError as error:
        if error.code != "verify.signature.revoked":
            raise
        return False
    return True


def test_a_revocation_list_is_put_there_and_refreshed(site, person, people, tmp_path):
    ana, mina, zoe = people
    everyone = [public(key) for key in people]
    assert person(site, "all", keys=everyone).return_value == 0
    assert [counts(site, key) for key in people] == [True, True, True]
    stay = [public(ana)]

    first = person(site, "all", "--revoked", revocation(tmp_path / "one.krl", zoe), keys=stay)
    assert "write /etc/edge-deploy/revoked.krl" in first.stdout
    assert [counts(site, key) for key in people] == [True, True, False]
    assert len(lines(site, KEYS)) == len(lines(site, SIGNERS)) == 3  # without --exactly nobody is taken away

    newer = revocation(tmp_path / "two.krl", zoe, mina)
    second = person(site, "all", "--revoked", newer, keys=stay)
    assert "replace /etc/edge-deploy/revoked.krl" in second.stdout
    assert [counts(site, key) for key in people] == [True, False, False]
    assert "nothing to change" in person(site, "all", "--revoked", newer, keys=stay).stdout
    assert "nothing to change" in person(site, "all", keys=stay).stdout  # and without the option it stays as it is


def test_a_list_that_revokes_less_is_refused_unless_it_is_to_be_exactly_that_and_undo_takes_all_lists_away(
    site, person, people, tmp_path
):
    ana, mina, zoe = people
    stay = [public(ana)]
    person(site, "all", keys=[public(key) for key in people])
    person(site, "all", "--revoked", revocation(tmp_path / "both.krl", zoe, mina), keys=stay)
    older = revocation(tmp_path / "older.krl", zoe)
    fingerprint = subprocess.run(["ssh-keygen", "-l", "-f", public(mina)], capture_output=True, text=True).stdout

    for words in ([], ["--plan"]):
        refused = person(site, "all", "--revoked", older, *words, keys=stay)
        assert refused.return_value == 2
        assert (
            f"revokes 1 more than this list, which would count again: hash: {fingerprint.split()[1]}" in refused.stdout
        )
    assert [counts(site, key) for key in (mina, zoe)] == [False, False]

    again = person(site, "all", "--exactly", "--revoked", older, keys=[public(ana), public(mina)])
    assert again.return_value == 0
    assert counts(site, mina)
    assert (site.root("d-00") / REVOKED).read_bytes() == older.read_bytes()
    assert [line.split()[0] for line in lines(site, FORMER)] == ["zoe@site"]

    undone = person(site, "all", "--undo")

    assert undone.return_value == 0, undone.stderr
    assert not (site.root("d-00") / "etc/edge-deploy").exists()


def test_a_revocation_list_that_somebody_has_changed_there_is_not_overwritten(site, person, people, tmp_path):
    ana, mina, zoe = people
    listed = revocation(tmp_path / "one.krl", zoe)
    person(site, "all", "--revoked", listed, keys=[public(ana)])
    by_hand = revocation(tmp_path / "hand.krl", zoe, mina).read_bytes()
    (site.root("d-00") / REVOKED).write_bytes(by_hand)

    refused = person(site, "all", "--revoked", listed, keys=[public(ana)])

    assert refused.return_value == 4
    assert (site.root("d-00") / REVOKED).read_bytes() == by_hand


def test_a_list_that_cannot_be_right_is_refused_before_anybody_is_called(site, person, people, tmp_path):
    ana, _, _ = people
    (tmp_path / "text").write_text("no list\n")
    (tmp_path / "empty").touch()
    for path, words in (
        (tmp_path / "text", "is no revocation list"),
        (tmp_path / "empty", "is no revocation list"),
        (tmp_path / "gone", "cannot be read"),
        (revocation(tmp_path / "ana.krl", ana), "revokes the key of ana@site"),
    ):
        with pytest.raises(DeployError, match=words) as caught:
            person(site, "all", "--revoked", path, keys=[public(ana)])
        assert caught.value.code == "request.revoked"

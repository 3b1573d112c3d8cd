"""Whose signatures count on a device, and for what, as provision writes it."""

from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from edge.bundle.statement import encode_chain
from edge.deploy.provision.facts import FACTS_SCRIPT
from edge.deploy.provision.keys import TrustChange, next_chain, public_of, read_public_key
from edge.deploy.provision.provision import _require_keys
from edge.deploy.provision.wanted import SIGNERS, Wanted, _settings, _trust
from edge.errors import DeployError
from tests.support.manifests import ssh_key
from tests.support.raised import error_of
from tests.support.wheels import device_facts, facts_told

PULL = {"repository": "registry.example/farms/gates"}


@pytest.fixture
def chain(tmp_path, keys):
    """Return what makes the trust document that names the release key for some namespaces, with its root."""
    root = ssh_key(tmp_path, "root")

    def make(*namespaces):
        change = TrustChange(added=[(keys[0], namespaces)])
        return public_of(root), encode_chain(next_chain((), change, root=root, now=datetime.now(timezone.utc))).decode()

    return make


@pytest.fixture
def keys(tmp_path):
    return [read_public_key(ssh_key(tmp_path, name).with_suffix(".pub")) for name in ("release", "promoter")]


def namespaces(wanted):
    """Return what each key may sign, by its owner."""
    (step,) = [step for step in _trust(wanted) if step["path"] == SIGNERS]
    return {line.split()[0]: line.split('"')[1] for line, _ in step["entries"]}


def wanted(**changes):
    return Wanted(name="a", compatible=("any",), networks=None, keys=[], **changes)


def test_a_device_that_is_pushed_to_knows_nobody_who_promotes(keys):
    assert namespaces(wanted(signers=[(keys[0], False)])) == {"release": "edge-release"}


def test_a_device_that_pulls_follows_the_statements_of_who_was_named_or_else_of_its_signers(keys):
    one = wanted(signers=[(keys[0], True)], pull=PULL)
    assert namespaces(one) == {"release": "edge-release,edge-release-downgrade,edge-ring"}
    both = replace(one, promoters=[keys[1]])
    assert namespaces(both) == {"promoter": "edge-ring", "release": "edge-release,edge-release-downgrade"}


def test_the_first_word_of_a_root_lies_in_roots_folder(chain):
    trust = chain("edge-release")

    files = {
        step["path"]: step["content"]
        for step in _settings(wanted(signers=[], trust=trust), device_facts())
        if "content" in step
    }

    assert files["/etc/edge-deploy/trust_root"] == trust[0] + "\n"
    assert files["/etc/edge-deploy/trust.json"] == trust[1]


@pytest.mark.parametrize(
    ("document", "has_signer", "is_there", "lacks"),
    [
        (None, False, False, "--signer or --trust is missing"),
        (None, True, False, None),
        (None, False, True, None),
        (("edge-release", "edge-ring"), False, False, None),
        (("edge-ring",), False, False, "names none whose releases count"),
        (("edge-ring",), True, False, "names none whose releases count"),
        (("edge-ring",), False, True, None),
    ],
)
def test_a_device_knows_a_signer_by_its_list_or_by_the_document_of_a_root(
    keys, chain, document, has_signer, is_there, lacks
):
    asked = wanted(signers=[(keys[0], False)] if has_signer else [], trust=document and chain(*document))
    facts = replace(device_facts(), has_key=True, has_signer=is_there)

    with pytest.raises(DeployError, match=lacks) if lacks else nullcontext():
        _require_keys(asked, facts, "gate-02")


def test_all_that_a_new_device_lacks_is_asked_for_at_once():
    error = error_of(_require_keys, wanted(signers=[]), device_facts(), "gate-02")

    assert error.code == "request.key"
    assert all(f"{option} " in error.hint and option in error.problem for option in ("--key", "--signer", "--trust"))


@pytest.mark.parametrize("name", ["allowed_signers", "trust.json"])
def test_a_device_that_has_a_list_or_a_document_of_a_root_knows_a_signer(tmp_path, name):
    (tmp_path / name).write_text("x")

    assert facts_told(FACTS_SCRIPT.replace("/etc/edge-deploy", str(tmp_path))).has_signer


@pytest.mark.parametrize(
    ("text", "told", "way_out"),
    [
        ("", "is empty", "ssh-keygen -t"),
        ("{key}{key}", "holds 2 keys", "one file for each"),
        ('me@x valid-before="20261129" {key}', "'me@x valid-before", "allowed_signers"),
        ('a {key}b valid-after="20261129" {key}', "holds 2 keys", "one file for each"),
        ("---- BEGIN SSH2 PUBLIC KEY ----\nAAAA\n", "not one public key", "PuTTY"),
        ("ssh-dss AAAAB3NzaC1kc3MAAACBAP me@x\n", "key of DSA", "ssh-keygen -t"),
        ("ssh-ed25519 AAAA\n", "not one public key", "PuTTY"),
    ],
)
def test_a_file_that_is_not_one_public_key_is_told_by_what_it_has(tmp_path, text, told, way_out):
    key = ssh_key(tmp_path, "release").with_suffix(".pub").read_text()
    (tmp_path / "given.pub").write_text(text.replace("{key}", key))

    error = error_of(read_public_key, tmp_path / "given.pub")

    assert error.code == "request.key"
    assert told in error.problem
    assert way_out in error.hint

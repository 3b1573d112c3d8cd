"""Whose signatures count on a device, and for what, as provision writes it."""

from dataclasses import replace
from datetime import datetime, timezone

import pytest

from edge.bundle.statement import encode_chain
from edge.deploy.provision.keys import TrustChange, first_chain, public_of, read_public_key
from edge.deploy.provision.wanted import SIGNERS, Wanted, _settings, _trust
from tests.support.little_wheels import device_facts
from tests.support.manifests import ssh_key

PULL = {"repository": "registry.example/farms/gates"}


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


def test_the_first_word_of_a_root_lies_in_roots_folder(tmp_path, keys):
    root = ssh_key(tmp_path, "root")
    chain = first_chain(TrustChange(added=[(keys[0], ("edge-release",))]), root=root, now=datetime.now(timezone.utc))
    trust = public_of(root), encode_chain(chain).decode()

    files = {
        step["path"]: step["content"]
        for step in _settings(wanted(signers=[], trust=trust), device_facts())
        if "content" in step
    }

    assert files["/etc/edge-deploy/trust_root"] == public_of(root) + "\n"
    assert files["/etc/edge-deploy/trust.json"] == trust[1]

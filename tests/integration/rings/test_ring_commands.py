"""`promote`, `withdraw` and `fleet` as a person or a job types them, over a real registry and a real broker."""

import json
import signal
import time
from datetime import datetime, timezone

import pytest

from edge.bundle.statement import encode_chain
from edge.deploy.provision.keys import TrustChange, next_chain, read_public_key
from edge.publish.messages import PullMessage, StateMessage
from tests.support.manifests import ssh_key


@pytest.fixture
def new(new):
    return new.manifest.release


@pytest.mark.promised(reason="a ring follows another one that is well")
def test_a_release_goes_to_a_second_ring_when_the_first_one_is_well(typist, fleet, new, desk):
    fleet.there("gate-01", "gate-02", ring="canary")
    release, when = f"{typist.where}:{new}", ["--when", "100% of canary", *typist.pipeline]
    named = typist.type("promote", release, "canary", "--devices", "north/gate-01,north/gate-02", *typist.common)
    assert named.returncode == 0, named.stderr

    early = typist.type("promote", release, "all", *when, "--within", "1s", "--every", "1", *typist.common)
    assert (early.returncode, desk.stated("stable-all")) == (10, None), early.stderr
    assert "canary: 0 of 2 devices have committed it, 2 are asked for" in early.stdout
    fleet.switched("gate-01", "gate-02", release=new)
    done = typist.type("promote", release, "all", *when, *typist.common)

    assert done.returncode == 0, done.stderr
    assert desk.stated("stable-all")[1] == new


@pytest.mark.slow(reason="four commands, one of which waits")
def test_too_many_failures_end_the_waiting_and_nothing_is_promoted(typist, fleet, new, desk):
    fleet.there("gate-01", ring="canary")
    release = f"{typist.where}:{new}"
    typist.type("promote", release, "canary", "--devices", "north/gate-01", *typist.common)
    fleet.switched("gate-01", release=new, result="rolled-back", reason="p95 doubled")

    done = typist.type("promote", release, "all", "--when", "90% of canary", *typist.pipeline, *typist.common)

    assert (done.returncode, desk.stated("stable-all")) == (11, None)
    assert "p95 doubled" in done.stdout


@pytest.mark.promised(reason="a stop wins")
def test_one_who_was_stopped_while_waiting_promotes_nothing_that_was_withdrawn_meanwhile(typist, fleet, new, desk):
    fleet.there("gate-01", ring="canary")
    release = f"{typist.where}:{new}"
    typist.type("promote", release, "canary", "--devices", "north/gate-01", *typist.common)
    waiting = typist.start(
        "promote", release, "all", "--when", "90% of canary", "--every", "0.2", *typist.pipeline, *typist.common
    )
    assert "0 of 1 devices have committed" in waiting.stderr.readline()
    waiting.send_signal(signal.SIGSTOP)
    fleet.switched("gate-01", release=new)
    stopped = typist.type("withdraw", release, "--why", "overheats", *typist.common)
    assert stopped.returncode == 0, stopped.stderr
    assert "stable-canary" in stopped.stdout

    waiting.send_signal(signal.SIGCONT)
    out, _ = waiting.communicate(timeout=60)

    assert (waiting.returncode, desk.stated("stable-all")) == (11, None)
    assert "overheats" in out


@pytest.mark.slow(reason="eight commands over a real registry and keys")
def test_a_key_that_does_not_count_states_and_publishes_nothing(typist, new, desk, root, key, tmp_path):
    release, first = f"{typist.where}:{new}", ssh_key(tmp_path, "root-key")
    assert typist.type("promote", release, "canary", *typist.common).returncode == 0
    added = tuple(
        (read_public_key(one.with_name(f"{one.name}.pub")), (namespace,))
        for one, namespace in ((ssh_key(tmp_path, "release"), "edge-release"), (ssh_key(tmp_path, "next"), "edge-ring"))
    )
    chain = next_chain((), TrustChange(added=added), root=first, now=datetime.now(timezone.utc))
    desk.desk.tell_trust(encode_chain(chain))
    stated, bundle = desk.stated("stable-canary"), root.bundle("new", sequence=3)

    for words in (
        ("promote", release, "canary", "--devices", "north/gate-01", *typist.common),
        ("promote", release, "canary", *typist.common[:-1], str(tmp_path / "release")),
        ("publish", str(bundle.path), f"{typist.where}:{new}", *typist.common[:-2]),
    ):
        told = typist.type(*words)
        assert (told.returncode, "verify.signature.signer" in told.stderr) == (4, True), told
        assert "version 1" in told.stderr
        assert "SHA256:" in told.stderr

    withdrawn = typist.type("withdraw", release, "--why", "overheats", *typist.common)
    assert (withdrawn.returncode, "verify.signature.signer" in withdrawn.stderr) == (4, True), withdrawn
    assert desk.desk.withdrawal(new), "devices follow the mark, whoever set it"
    assert typist.type("withdraw", release, "--lift", *typist.common).returncode == 0
    assert desk.stated("stable-canary") == stated
    assert desk.desk.members("stable-canary") is None
    assert desk.desk.release(new).manifest.sequence == 2
    assert typist.type("promote", release, "later", "--anyway", *typist.common).returncode == 0
    counting = ("promote", release, "canary", *typist.common[:-1], str(tmp_path / "next"))
    told = typist.type(*counting)
    assert (told.returncode, "edge-release" in told.stderr) == (4, True), told  # which the signer of the release is not
    added = ((read_public_key(root.key.with_name(f"{root.key.name}.pub")), ("edge-release",)),)
    later = next_chain(chain, TrustChange(added=added), root=first, now=datetime.now(timezone.utc))
    desk.desk.tell_trust(encode_chain(later))
    assert typist.type(*counting).returncode == 0


@pytest.mark.slow(reason="real registry, broker and keys")
def test_a_withdrawal_is_lifted_by_its_own_command_alone(typist, new, desk):
    release = f"{typist.where}:{new}"
    assert typist.type("withdraw", release, "--why", "overheats", *typist.common).returncode == 0
    assert typist.type("promote", release, "all", *typist.common).returncode == 11

    assert typist.type("withdraw", release, "--lift", *typist.common).returncode == 0

    assert typist.type("promote", release, "all", *typist.common).returncode == 0


@pytest.mark.slow(reason="seven commands over a real registry")
def test_a_ring_or_a_device_that_nothing_names_is_warned_of_where_others_are_known(typist, new, tmp_path):
    inventory = '[[target]]\nname = "gate-01"\nhost = "a"\nlabels = { ring = "all" }\n'
    for ring, devices, text, warned in (
        ("canary", None, "", None),
        ("rest", None, "", None),
        ("canari", None, "", "known: canary, rest;"),
        ("all", None, inventory, None),
        ("early", "north/gate-01", inventory, None),
        ("al", None, inventory, "known: all, canari,"),
        ("late", "north/f-22,north/gate-01", inventory, "north/f-22;"),
    ):
        if text:
            (tmp_path / "targets.toml").write_text(text)
        named = [] if devices is None else ["--devices", devices]
        told = typist.type("promote", f"{typist.where}:{new}", ring, *named, *typist.common)
        assert (told.returncode, "warning" in told.stderr) == (0, warned is not None), told
        assert warned is None or warned in told.stderr


@pytest.mark.slow(reason="real registry, broker and keys")
def test_nobody_counts_who_was_not_named_and_the_inventory_names_by_its_labels(typist, fleet, new, tmp_path):
    fleet.there("gate-01", "phantom", ring="canary")
    fleet.switched("phantom", release=new, result="rolled-back")
    fleet.switched("gate-01", release=new)
    release = f"{typist.where}:{new}"
    to_all = ("promote", release, "all", "--when", "100% of canary, at most 0% failed", *typist.pipeline)
    typist.type("promote", release, "canary", *typist.common)

    refused = typist.type(*to_all, *typist.common)
    assert (refused.returncode, "--devices" in refused.stderr) == (2, True)
    (tmp_path / "targets.toml").write_text('[[target]]\nname = "gate-01"\nhost = "a"\nlabels = { ring = "canary" }\n')
    done = typist.type(*to_all, *typist.common)

    assert done.returncode == 0, done.stderr
    assert "1 speak for the ring, and do not count" in done.stderr


@pytest.mark.slow(reason="real registry, broker and keys")
def test_fleet_shows_who_runs_what_and_cleans_what_devices_say(typist, fleet):
    fleet.there("gate-01", "gate-02", ring="canary")
    fleet.switched("gate-01", release="0" * 12)
    fleet.switched("gate-02", release="1" * 12, result="rolled-back", reason="p95\x1b[31m doubled")
    fleet.say([StateMessage(device="gate-03", state="degraded", epoch=1, session=1, since=None, reason="=cmd()")])
    fleet.say([PullMessage(device="gate-03", repository="r.example/a", channel="stable", ring="all", release="2" * 12)])
    told = {
        "repository": "r.example/a",
        "channel": "stable",
        "ring": "all",
        "result": "kept",
        "reason": "nothing newer",
    }
    fleet.say([PullMessage(device="gate-04", looked_at="2026-11-25T00:00:00Z", **told)])
    fleet.away("gate-02")

    table = typist.type("fleet", *typist.pipeline)
    rows = json.loads(typist.type("fleet", "--json", *typist.pipeline).stdout)

    assert table.returncode == 0, table.stderr
    assert "\x1b" not in table.stdout
    assert [one["device"] for one in rows] == ["north/gate-01", "north/gate-02", "north/gate-03", "north/gate-04"]
    assert [one["release"] for one in rows] == ["0" * 12, None, None, None]
    assert (rows[1]["failed"], rows[1]["silent_since"]) == ("1" * 12, "unknown")
    assert "doubled" in rows[1]["why"]
    assert rows[2]["state"] == "degraded: =cmd()"
    assert (rows[3]["last_look"], rows[3]["failed"], rows[3]["why"]) == ("2026-11-25T00:00:00Z", None, "nothing newer")
    assert rows[3]["look_age_s"] > 86_400
    assert [one["ring"] for one in rows] == ["canary", "canary", "all", "all"]
    assert time.strptime(rows[0]["since"], "%Y-%m-%dT%H:%M:%SZ")

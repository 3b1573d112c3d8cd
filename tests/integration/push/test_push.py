"""One target, the real agent as a process, scripted builder and trial: what a person is told, what the device has."""

import base64
import json
import os
import threading

import pytest

from edge.bundle.manifest import GoldenFrames
from edge.device.health import read_health
from edge.device.state import Phase
from edge.transport.ssh import SshChannel
from tests.support.agent_session import RawClient
from tests.support.audit import audit_lines
from tests.support.deployable import real_bundle
from tests.support.device_releases import attach_engine
from tests.support.raised import code_of
from tests.support.wait import wait_looks, wait_until


def _phases(device):
    return [event.phase for event in device.events if event.event == "end"]


def _ask(device, *requests):
    with RawClient(device.connect()) as client:
        return [client.ask(verb, values) for verb, values in requests][-1]


def _audited(device):
    return [line["what"] for line in audit_lines(device.layout, 100)]


def _begun(device, bundle, **options):
    """Push in a thread, which is returned with its outcomes, until the device builds."""
    outcomes = []
    pushing = threading.Thread(target=lambda: outcomes.append(device.push(bundle, **options)))
    pushing.start()
    wait_until(lambda: device.layout.build_request.exists(), what="the push builds")
    return pushing, outcomes


def test_a_first_push_ends_committed_and_serving(device):
    bundle = device.bundle()
    outcome = device.push(bundle)
    assert (outcome.result, outcome.exit_code, outcome.code) == ("committed", 0, None)
    assert device.device.releases.current() == bundle.manifest.release
    assert device.device.state().phase is Phase.IDLE
    assert _phases(device) == ["connect", "plan", "lock", "upload", "stage", "build", "switch", "trial", "clean"]
    assert outcome.bytes_sent == sum(file.length_bytes for file in bundle.manifest.files)


def test_a_push_that_is_committed_names_the_streams_that_give_no_frames(device):
    device.script(streams={"gate": "up", "lobby": "connecting"})

    assert device.push(device.bundle()).result == "committed"

    told = [event.hint for event in device.events if (event.phase, event.event) == ("trial", "note")]
    assert [("lobby" in words, "gate" in words) for words in told] == [(True, False)]


def test_a_push_and_a_status_say_what_a_trial_waits_for(device):
    device.script(waits_for="no broker", trial_s=3.0)
    trials = []

    def on_event(event):
        device.events.append(event)
        if (event.phase, event.event) == ("trial", "note"):
            trials.append(_ask(device, ("status", {}))["waits_for"])

    assert device.push(device.bundle(), on_event=on_event).result == "committed"

    told = [event.hint for event in device.events if (event.phase, event.event) == ("trial", "note")]
    assert (["no broker" in words for words in told], trials) == ([True], ["no broker"])
    assert _ask(device, ("status", {}))["waits_for"] is None


def test_a_second_release_sends_only_what_is_new_and_can_be_undone(device):
    model = os.urandom(100_000)
    first, second = device.bundle("one", model=model), device.bundle("two", model=model, sequence=2)
    device.push(first)
    outcome = device.push(second)
    assert outcome.result == "committed"
    assert outcome.bytes_sent == len(b"name: two")
    told = [event.hint for event in device.events if (event.phase, event.event) == ("switch", "note")]
    # The service that stands for the first one has not said a word for a minute.
    assert [first.manifest.release in words for words in told] == [True]
    answer = _ask(device, ("lock", {"who": "tester", "why": "test"}), ("rollback", {}))
    assert answer["release"] == first.manifest.release
    assert device.device.releases.current() == first.manifest.release
    assert device.device.state().fallback == second.manifest.release


def test_f15_a_file_that_was_damaged_on_the_device_is_sent_again(device):
    model = os.urandom(100_000)
    device.push(device.bundle("one", model=model))
    second = device.bundle("two", model=model, sequence=2)
    (damaged,) = (file for file in second.manifest.files if file.length_bytes == len(model))
    blob = device.layout.blob(damaged.sha256)
    blob.chmod(0o600)
    blob.write_bytes(bytes(len(model)))

    outcome = device.push(second)

    assert (outcome.result, outcome.bytes_sent) == ("committed", len(model) + len(b"name: two"))
    assert [event.code for event in device.events if (event.phase, event.event) == ("stage", "note")] == [
        "transfer.damaged"
    ]
    assert blob.read_bytes() == model


def test_an_unchanged_bundle_moves_nothing(device, sshd):
    bundle = device.bundle(model=os.urandom(1_000_000))
    connect = lambda: SshChannel(sshd.address())  # noqa: E731
    device.push(bundle, connect)
    outcome = device.push(bundle, connect)
    assert (outcome.result, outcome.exit_code, outcome.bytes_sent) == ("unchanged", 0, 0)
    assert _audited(device).count("lock") == 2  # push and garbage collection of the first one


def test_a_plan_says_what_would_be_done_and_does_nothing(device):
    model = os.urandom(50_000)
    bundle = device.bundle("one", model=model)
    before = sorted(str(path) for path in device.root.rglob("*") if path.name != "agent.pid")
    outcome = device.push(bundle, is_plan=True)
    assert (outcome.result, outcome.exit_code) == ("planned", 10)
    assert outcome.evidence["bytes"] == 50_000 + len(b"name: one")
    engine = outcome.evidence["engine"]
    assert (engine["key"], engine["build"], engine["last_build_s"]) == (None, True, None)
    assert "none here yet" in engine["why"]
    assert sorted(str(path) for path in device.root.rglob("*") if path.name != "agent.pid") == before
    device.push(bundle)
    outcome = device.push(bundle, is_plan=True)
    assert (outcome.result, outcome.exit_code) == ("unchanged", 0)


@pytest.mark.promised(reason="a push ends well or not at all")
def test_an_engine_of_a_lesser_kind_is_told_by_status_and_built_anew_by_a_push_of_the_same_release(device):
    sound, bundle = device.bundle("one"), device.bundle("two", sequence=2)
    device.push(sound)
    device.push(bundle)
    attach_engine(device.device, bundle.manifest.release, kind="abacus")
    told = "openvino runs here by now and auto prefers it to abacus: push the release again to build for it"

    (status,) = (one for one in _ask(device, ("status", {}))["releases"] if one["release"] == bundle.manifest.release)
    plan = device.push(bundle, is_plan=True)

    assert status["engine"].endswith(told)
    assert (plan.result, plan.evidence["engine"]["build"], plan.evidence["engine"]["why"]) == ("planned", True, told)
    assert device.push(bundle).result == "committed"
    assert device.device.releases.current() == bundle.manifest.release
    assert device.push(bundle).result == "unchanged"


@pytest.mark.parametrize(
    ("script", "result", "exit_code", "code"),
    [
        ({"build": "fail"}, "failed", 7, "smoke.recall"),
        ({"build": "die"}, "failed", 7, "build.died"),
        ({"trial": "refuse"}, "rolled-back", 8, "trial.frames"),
        ({"trial": "refuse", "restart": "fail"}, "rolled-back", 8, "trial.frames"),
    ],
    ids=["golden frames fail", "the builder is killed", "no frames", "the service does not start"],
)
def test_f19_f20_f21_a_bad_release_leaves_the_old_one_serving(device, script, result, exit_code, code):
    first, second = device.bundle("one"), device.bundle("two", sequence=2)
    device.push(first)
    device.script(**script)
    outcome = device.push(second)
    assert (outcome.result, outcome.exit_code, outcome.code) == (result, exit_code, code)
    assert outcome.hint
    assert device.device.releases.current() == first.manifest.release
    assert device.device.state().phase is Phase.IDLE


@pytest.mark.promised(reason="a push ends well or not at all")
def test_a_release_that_failed_here_is_tried_again_only_when_asked(device):
    first, second = device.bundle("one"), device.bundle("two", sequence=2)
    device.push(first)
    device.script(trial="refuse")
    device.push(second)
    device.script()
    outcome = device.push(second)
    assert (outcome.result, outcome.exit_code, outcome.code) == ("refused", 6, "preflight.bad")
    assert "gate gives no frames" in outcome.problem
    assert "--retry-bad" in outcome.hint
    assert device.push(second, retry_bad=True).result == "committed"


def test_f13_an_older_sequence_is_refused_unless_it_is_signed_for_that(device):
    device.push(device.bundle("two", sequence=2))
    older = device.bundle("one", sequence=1)
    outcome = device.push(older)
    assert (outcome.result, outcome.exit_code, outcome.code) == ("refused", 4, "verify.downgrade")


def test_f17_a_release_for_which_there_is_no_room_is_refused_before_a_byte_flows(device):
    text = device.layout.device_toml.read_text()
    device.layout.device_toml.write_text(text.replace("reserve_bytes = 0", f"reserve_bytes = {2**60}"))
    outcome = device.push(device.bundle())
    assert (outcome.result, outcome.exit_code, outcome.code) == ("refused", 6, "preflight.space")
    assert outcome.evidence["reserve_bytes"] == 2**60
    assert outcome.bytes_sent == 0


def test_a_release_without_golden_frames_is_taken_only_where_the_settings_allow_it(device):
    text = device.layout.device_toml.read_text()
    device.layout.device_toml.write_text(text.replace("allow_unproven = true\n", ""))
    unproven = device.bundle(golden_frames=GoldenFrames.NONE)
    outcome = device.push(unproven)
    assert (outcome.result, outcome.exit_code, outcome.code) == ("refused", 4, "verify.unproven")
    assert outcome.bytes_sent == 0
    # The plan has said so; the agent itself refuses a client that goes on all the same.
    with RawClient(device.connect()) as client:
        client.ask("lock", {"who": "tester", "why": "test"})
        assert code_of(client.ask, "put-manifest", _offer(unproven)) == "verify.unproven"
    assert not any(device.layout.store.iterdir())

    device.layout.device_toml.write_text(text)
    assert device.push(unproven).result == "committed"


def _offer(bundle):
    parts = {"manifest": bundle.manifest_bytes, "signature": bundle.signature}
    return {name: base64.b64encode(content).decode() for name, content in parts.items()}


def test_a_device_without_units_or_memory_says_all_that_is_wrong(device):
    for unit in (device.root / "etc/systemd/system").iterdir():
        unit.unlink()
    (device.root / "proc/meminfo").write_text("MemTotal: 8000000 kB\nMemAvailable: 100 kB\n")
    text = device.layout.device_toml.read_text()
    device.layout.device_toml.write_text(text.replace("reserve_memory_bytes = 0", "reserve_memory_bytes = 1000000"))
    outcome = device.push(device.bundle())
    assert outcome.exit_code == 6
    assert outcome.evidence["refusals"] == ["preflight.memory", "preflight.units"]


def test_a_build_that_would_not_fit_in_memory_is_refused_before_a_byte_flows(device):
    # 128 MiB, 8 times the model of 1 MiB, 54 bytes for each pixel of 16 images of 640 x 640: 473 MiB.
    engine = {"kind": "auto", "precision": "fp32", "max_batch": 16, "input": [640, 640]}
    bundle = device.bundle(model=bytes(1024**2), engine=engine)
    meminfo = device.root / "proc/meminfo"
    meminfo.write_text("MemTotal: 8000000 kB\nMemAvailable: 484000 kB\n")
    outcome = device.push(bundle)
    assert (outcome.result, outcome.exit_code, outcome.code) == ("refused", 6, "preflight.memory")
    assert outcome.evidence["build_bytes"] == (128 + 8) * 1024**2 + 54 * 16 * 640 * 640
    assert outcome.bytes_sent == 0

    meminfo.write_text("MemTotal: 8000000 kB\nMemAvailable: 486000 kB\n")
    assert device.push(bundle).result == "committed"


def test_a_partial_blob_that_rotted_is_started_again_once(device):
    model = os.urandom(700_000)
    bundle = device.bundle(model=model)
    sha256 = next(f.sha256 for f in bundle.manifest.files if f.path == "model.onnx")
    device.layout.partial(sha256).write_bytes(bytes(300_000))
    outcome = device.push(bundle)
    assert outcome.result == "committed"
    assert outcome.bytes_sent == 400_000 + 700_000 + len(b"name: one")
    assert any(event.code == "transfer.hash" for event in device.events)


def test_a_file_that_changed_after_bundling_is_not_sent(device):
    bundle = device.bundle()
    (bundle.path / "model.onnx").write_bytes(b"another one!")
    outcome = device.push(bundle)
    assert (outcome.result, outcome.exit_code, outcome.code) == ("refused", 2, "bundle.file")


def test_a_push_that_wants_to_be_confirmed_confirms_over_a_new_connection(device):
    outcome = device.push(device.bundle(), confirm=True)
    assert outcome.result == "committed"
    assert [event.phase for event in device.events if event.event == "note"] == ["plan", "build", "trial"]
    assert "confirm" in _audited(device)


@pytest.mark.parametrize("is_over_ssh", [False, True], ids=["local", "ssh"])
def test_a_detached_push_leaves_and_the_device_goes_on_alone(device, sshd, is_over_ssh):
    bundle = device.bundle()
    device.script(build_s=1.0)
    outcome = device.push(bundle, (lambda: SshChannel(sshd.address())) if is_over_ssh else None, detach=True)
    assert (outcome.result, outcome.exit_code) == ("detached", 0)
    assert device.device.releases.current() is None
    wait_until(
        lambda: getattr(device.device.state().last, "result", "") == "committed", what="the device commits alone"
    )
    assert device.device.releases.current() == bundle.manifest.release


@pytest.mark.promised(reason="a push ends well or not at all")
def test_f10_two_pushes_at_once_the_second_is_told_who_holds_the_lock_or_waits(device):
    device.script(build_s=2.0)
    first, _ = _begun(device, device.bundle())
    other = device.bundle("two", sequence=2)
    outcome = device.push(other)
    assert (outcome.result, outcome.exit_code, outcome.code) == ("refused", 5, "lock.held")
    assert outcome.evidence["who"] == "tester"
    assert device.bundle().manifest.release in outcome.evidence["why"]
    assert outcome.evidence["since"]
    assert device.push(other, lock_wait_s=30).result == "committed"
    first.join(60)


@pytest.mark.slow(reason="two pushes")
@pytest.mark.parametrize(("trial", "code"), [("commit", None), ("refuse", "preflight.bad")])
def test_two_pushes_of_one_release_at_once_try_it_once(device, trial, code):
    device.push(device.bundle("old"))
    device.script(build_s=2.0, trial=trial)
    new = device.bundle("new", sequence=2)
    first, firsts = _begun(device, new)

    second = device.push(new, lock_wait_s=30)

    first.join(60)
    assert firsts[0].result == ("committed" if code is None else "rolled-back")
    assert (second.result, second.code) == ("unchanged" if code is None else "refused", code), second
    assert _audited(device).count("switch") == 2  # of the old release, and one of the new


def test_whoever_stops_waiting_is_free_within_a_second_and_so_is_the_lock(device):
    device.script(build="hang")
    stop = threading.Event()
    thread, outcomes = _begun(device, device.bundle(), stop=stop)
    stop.set()
    wait_looks(lambda: not thread.is_alive(), what="the end", seconds=1.5)
    assert (outcomes[0].result, outcomes[0].exit_code) == ("interrupted", 130)
    device.stop()  # a builder that hangs: systemd ends it at its own deadline
    device.script()
    assert device.push(device.bundle()).result == "committed"


def test_a_device_whose_settings_are_damaged_says_so_at_once(device):
    device.layout.device_toml.write_text("name = 5\n")
    outcome = device.push(device.bundle())
    assert (outcome.result, outcome.exit_code, outcome.code) == ("failed", 1, "device.settings")


def test_requests_out_of_order_or_of_nonsense_are_refused_and_audited(device):
    with RawClient(device.connect()) as client:
        for verb, values, code in [
            ("stage", {"release": "x"}, "request.order"),
            ("blob", {"sha256": "../../etc/passwd", "offset": 0, "length": 1}, "request.order"),
            ("lock", {"who": 5, "why": "x"}, "request.value"),
            ("lock", {}, "request.value"),
            ("put-manifest", {"manifest": "", "signature": ""}, "request.order"),
            ("put-manifest", {}, "request.value"),
            ("format-disk", {}, "request.verb"),
            ("plan", {"manifest": "!!!", "signature": ""}, "request.value"),
            ("logs", {"lines": -1}, "request.value"),
            ("rollback", {"to": "x"}, "request.order"),
            ("confirm", {"release": "0" * 12}, "request.not-armed"),
        ]:
            assert code_of(client.ask, verb, values) == code, verb
        client.ask("lock", {"who": "tester", "why": "test"})
        for verb, values, code in [
            ("have", {"sha256": ["x"]}, "request.order"),
            ("rollback", {}, "request.rollback"),
            ("rollback", {"to": "../x"}, "request.release"),
            ("rollback", {"to": "0" * 12}, "request.rollback"),
        ]:
            assert code_of(client.ask, verb, values) == code, verb
        assert client.ask("ping") == {}
    assert "format-disk" in _audited(device)


def test_status_facts_and_logs_answer_without_a_lock(device):
    bundle = device.bundle()
    device.push(bundle)
    status = _ask(device, ("status", {}))
    assert status["current"] == bundle.manifest.release
    assert status["state"]["phase"] == "idle"
    assert status["releases"][0]["pipeline"] == "one"
    assert status["health"]["streams"]["gate"]["state"] == "up"
    assert _ask(device, ("facts", {}))["name"] == "gate-01"
    answer = _ask(device, ("logs", {"lines": 5}))
    assert answer["lines"] or answer["note"]
    json.dumps(status)


def test_a_build_of_an_earlier_push_that_still_runs_is_waited_for_and_then_ours_begins(device):
    device.script(build_s=1.5)
    first, second = device.bundle("one"), device.bundle("two", sequence=2)
    stop = threading.Event()
    thread, _ = _begun(device, first, stop=stop)
    stop.set()
    thread.join(60)
    outcome = device.push(second)
    assert outcome.result == "committed"
    assert device.device.releases.current() == second.manifest.release


@pytest.mark.promised(reason="a push of a real release ends well or is undone")
def test_a_good_release_is_committed_and_one_without_frames_is_undone(device, push_real):
    limits = {"hold_s": 3.0, "deadline_s": 12.0}
    good = real_bundle(device, sequence=1, **limits)
    outcome = push_real(good)
    assert outcome.result == "committed", outcome
    assert read_health(device.layout.health).release == good.manifest.release

    dead = [{"id": "a", "uri": "rtsp://127.0.0.1:9/none"}]
    outcome = push_real(real_bundle(device, sequence=2, streams=dead, **limits))
    assert (outcome.result, outcome.exit_code) == ("rolled-back", 8), outcome
    assert device.device.releases.current() == good.manifest.release
    assert device.device.state().phase is Phase.IDLE
    assert read_health(device.layout.health).release == good.manifest.release

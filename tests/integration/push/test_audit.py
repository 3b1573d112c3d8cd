"""The audit log under whoever holds the deploy key and asks without end: what changed what serves stays readable."""

import pytest

from edge.errors import DeployError
from tests.support.agent_session import RawClient
from tests.support.audit import audit_lines

pytestmark = pytest.mark.slow_but(
    "test_requests_that_change_nothing_do_not_push_out_what_changed_what_serves",
    reason="further pushes over real agents",
)

LONG = "\U0001f600" * 200  # of what a lock may say, what takes the most room in a line


def _lines(device):
    return audit_lines(device.layout)


def _lengths(device, names="audit*.jsonl"):
    return {path: path.stat().st_size for path in device.layout.var.glob(names)}


def _bytes(device):
    return sum(_lengths(device, "audit*.jsonl*").values())


def test_requests_that_change_nothing_do_not_push_out_what_changed_what_serves(device):
    device.push(device.bundle())
    for _ in range(3):
        before = _lengths(device)
        with RawClient(device.connect()) as client:
            client.ask("lock", {"who": LONG, "why": "x"})
            client.ask("gc")
        # As after hours of the same: the log that it has gone to is full.
        for path in [path for path, length in _lengths(device).items() if length != before.get(path)]:
            with path.open("ab") as log:
                log.write((b'{"what": "lock", "result": "' + b"x" * 1000 + b'"}\n') * 1100)

    assert {"stage", "switch"} <= {line["what"] for line in _lines(device)}
    logs = _lengths(device)
    assert {"audit-requests.jsonl", "audit.jsonl"} <= {path.name for path in logs}
    assert {path.stat().st_mode & 0o777 for path in logs} == {0o600}  # its owner's alone


def test_a_loop_within_one_connection_is_counted_and_does_not_wear_the_flash(device):
    device.push(device.bundle())
    before = _bytes(device)
    with RawClient(device.connect()) as client:
        for _ in range(200):
            client.ask("lock", {"who": LONG, "why": "x"})
        for _ in range(200):
            with pytest.raises(DeployError):
                client.ask("format-disk")

    assert _bytes(device) - before < 20_000
    told = {line["what"]: line.get("times") for line in _lines(device)}
    assert (told["lock"], told["format-disk"]) == (199, 199)


def test_other_words_each_time_do_not_wear_the_flash_either(device):
    device.push(device.bundle())
    before = _bytes(device)
    with RawClient(device.connect()) as client:
        for number in range(500):
            with pytest.raises(DeployError):
                client.ask(f"verb-{number}")

    assert len([line for line in _lines(device) if str(line["what"]).startswith("verb-")]) < 100
    assert _bytes(device) - before < 40_000
    assert max(line.get("times", 1) for line in _lines(device)) > 400


def test_a_way_back_that_goes_nowhere_is_no_change(device):
    bundle = device.bundle()
    device.push(bundle)
    before = device.layout.audit.read_bytes()
    with RawClient(device.connect()) as client:
        client.ask("lock", {"who": "mina", "why": "x"})
        client.ask("rollback", {"to": bundle.manifest.release})

    assert device.layout.audit.read_bytes() == before
    assert _lines(device)[-1]["what"] == "rollback"

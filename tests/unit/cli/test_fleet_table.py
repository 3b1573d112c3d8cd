"""What `edge-deploy fleet` makes of the last words of a device."""

import json
from contextlib import contextmanager

import pytest

from edge.deploy.rings.verdict import Heard
from edge.publish.messages import DeployMessage, PullMessage, StateMessage
from tests.support.command_line import command

OLD, NEW = "8f98d218a2ef", "3f9a1c07b2de"
LEFT = {"release": OLD, "from_": "0" * 12, "result": "rolled-back", "reason": "asked for by root@vm"}
AT, LATER = "2026-11-25T10:00:00Z", "2026-11-25T11:00:00Z"
GATE = "gate-01"


@pytest.fixture
def row(monkeypatch):
    """Return the row of a device as JSON has it."""

    def row(**words):
        @contextmanager
        def heard(path, credential):
            class Hearing:
                def heard(self):
                    return {"north/gate-01": Heard(**words)}

            yield Hearing(), "north"

        monkeypatch.setattr("edge.cli.commands.fleet.heard", heard)
        (found,) = json.loads(command("edge-deploy", "fleet", "--pipeline", __file__, "--json").stdout)
        return found

    return row


@pytest.mark.parametrize(
    ("pull", "failed", "why"),
    [
        ({"release": NEW, "result": "refused", "code": "preflight.space", "at": LATER}, NEW, "preflight.space: "),
        ({"release": NEW, "result": "refused", "code": "verify.signature.signer", "at": AT}, NEW, "verify.signature."),
        ({"release": NEW, "result": "failed", "code": "registry.tls", "at": LATER}, None, "registry.tls: "),
        ({"release": NEW, "result": "failed", "code": "device.settings", "at": LATER}, None, "device.settings: "),
        ({"release": OLD, "result": "refused", "code": "preflight.bad", "at": LATER}, OLD, "preflight.bad: "),
        ({"release": OLD, "result": "refused", "code": "preflight.space", "at": "2026-11-24T00:00:00Z"}, OLD, "asked "),
        ({"release": OLD, "result": "rolled-back", "code": "trial.frames", "at": LATER}, OLD, "asked for by root@vm"),
        ({"release": OLD, "result": "unchanged", "at": LATER}, OLD, "asked for by root@vm"),
        ({"release": NEW, "result": "refused", "code": "lock.trial", "at": LATER}, None, "lock.trial: "),
    ],
)
def test_what_is_wrong_today_is_not_behind_the_last_rollback(row, pull, failed, why):
    found = row(deploy=DeployMessage(device=GATE, at=AT, **LEFT), pull=PullMessage(device=GATE, reason="r", **pull))

    assert (found["failed"], found["why"][: len(why)]) == (failed, why)


def test_times_and_ages_are_told_as_such(row):
    state = StateMessage(device=GATE, state="offline", epoch=1, session=1, since="2026-11-25T12:00:00.123456Z")
    found = row(
        state=state, deploy=DeployMessage(device=GATE, at=AT, **LEFT), pull=PullMessage(device=GATE, looked_at=AT)
    )

    assert (found["release"], found["since"]) == ("0" * 12, AT)
    assert found["silent_since"] == "2026-11-25T12:00:00Z"
    assert found["look_age_s"] > 0

"""What `edge-deploy status` says of who has answered."""

import pytest

from edge.cli.commands.status import _agent
from edge.wire.software import AgentReport

INSTALLED = AgentReport(version="0.1.0", software=None, installed="0.1.0", owed=None)


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (None, []),
        (INSTALLED, ["agent     0.1.0, as installed"]),
        (
            AgentReport(version="0.2.0", software="5e2b7c9d01aa", installed="0.1.0", owed=None),
            ["agent     0.2.0 (5e2b7c9d01aa), beside 0.1.0 installed"],
        ),
        (
            AgentReport(version="0.1.0", software=None, installed="0.1.0", owed="plan"),
            [
                "agent     0.1.0, as installed; what the release brought has failed at 'plan', so this one goes first",
            ],
        ),
    ],
)
def test_who_has_answered_is_said_in_a_line(report, words):
    assert list(_agent(report)) == words

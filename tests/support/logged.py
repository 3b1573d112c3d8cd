"""What was logged, by the ids of `edge.log_events` in place of the words: a line is `ID key=value ...`."""

import pytest

from edge.log_events import EVENTS, phrase_of


def logged(caplog: pytest.LogCaptureFixture) -> str:
    lines = []
    for record in caplog.records:
        phrase = phrase_of(str(record.msg))
        event = EVENTS[phrase].id if phrase in EVENTS else "other"
        lines.append(f"{event} {record.getMessage().removeprefix(phrase).strip()}")
    return "\n".join(lines)

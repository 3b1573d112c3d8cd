"""The tables of docs/log-events.md, from the catalogue: python -m tools.log_events_page."""

from __future__ import annotations

from pathlib import Path

from edge.log_events import EVENTS, NOTHING

__all__ = ["PAGE", "page_of"]

PAGE = Path(__file__).parents[1] / "docs/log-events.md"
_HEAD = "| Event | Line | What to do |\n"


def page_of(page: str) -> str:
    """Return `page` with a row for each event, and none else, behind the head of its table."""
    before, _, _ = page.partition(_HEAD)
    rows = [f"| `{one.id}` | {one.phrase} | {one.remedy} |" for one in sorted(EVENTS.values()) if one.remedy != NOTHING]
    calm = [f"- `{one.id}`: {one.phrase}" for one in sorted(EVENTS.values()) if one.remedy == NOTHING]
    return before + _HEAD + "\n".join(["|---|---|---|", *rows, "", "These need nothing:", "", *calm, ""])


if __name__ == "__main__":
    PAGE.write_text(page_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

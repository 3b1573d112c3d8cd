"""`edge-deploy doctor` and `edge-runtime doctor`."""

from __future__ import annotations

from pathlib import Path

import click

from edge.cli.lazy import verbosity_option
from edge.cli.paths import PIPELINE, Command

__all__ = ["doctor"]

_USAGE_OR_CONFIGURATION = 2


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  edge-deploy doctor
  edge-runtime doctor --json
  edge-runtime doctor --pipeline gates.yaml""",
)
@click.option("--pipeline", "path", type=PIPELINE, help="Measure its engine here, and say what it can serve.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@verbosity_option
def doctor(path: Path | None, as_json: bool) -> int:
    """Show what this machine has and what is missing, with the command to get it.

    Exits with 2 when something is missing that nothing works without. With --pipeline, a few batches are inferred
    and held against the max_fps of the streams; decoding is not measured. On a known Jetson the bound of its module and
    power mode is told as well: what no engine infers there.
    """
    from edge.cli.output import echo_json, echo_pairs
    from edge.runtime.doctor import examine, examine_bound, examine_pipeline

    findings = list(examine())
    if path is not None:
        bound = examine_bound(path)
        findings += [finding for finding in (bound, examine_pipeline(path)) if finding is not None]
    if as_json:
        echo_json(
            {
                finding.name: {"here": finding.is_there, "needed": finding.is_needed, "detail": finding.detail}
                for finding in findings
            }
        )
    else:
        marks = {True: "ok     ", False: "missing"}
        echo_pairs((f"{marks[finding.is_there]} {finding.name}", finding.detail) for finding in findings)
    is_broken = any(finding.is_needed and not finding.is_there for finding in findings)
    return _USAGE_OR_CONFIGURATION if is_broken else 0

"""`edge-deploy doctor` and `edge-runtime doctor`."""

from __future__ import annotations

from pathlib import Path

from edge.cli.paths import command, pipeline_argument

__all__ = ["doctor"]

_USAGE_OR_CONFIGURATION = 2


@command("""
  edge-deploy doctor
  edge-runtime doctor --json
  edge-runtime doctor gates.yaml""")
@pipeline_argument("Measure its engine here, and say what it can serve.")
def doctor(path: Path | None, as_json: bool) -> int:
    """Show what this machine has and what is missing, with the command to get it.

    Exits with 2 when something is missing that nothing works without. With PIPELINE, a few batches are inferred
    and held against the max_fps of the streams; decoding is not measured. On a known Jetson the bound of its module and
    power mode is told as well: what no engine infers there. On a provisioned device, with root or sudo without a
    password, it also says what works in a shell and not inside the sandbox of the service.
    """
    from edge.cli.output import echo_json, echo_pairs
    from edge.runtime.doctor import examine, examine_bound, examine_pipeline
    from edge.runtime.prove.run import examine_as_service

    findings = [*examine(), *([one] if (one := examine_as_service()) is not None else [])]
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

"""`edge-deploy roofline`."""

from __future__ import annotations

from pathlib import Path

import click

from edge.cli.output import echo_json, echo_result
from edge.cli.paths import MODEL, READ, command
from edge.cli.roofline_lines import echo_rooflines, machines_lines, roofline_of, rooflines_as_json
from edge.quantize.account import accounts_of
from edge.roofline.bound import require_bound
from edge.roofline.machines import all_machines
from edge.roofline.proof import machine_named

__all__ = ["roofline"]


def _list_machines(*, as_json: bool) -> None:
    found = [found for one in all_machines() for found in (one, *one.in_each_mode())]
    echo_result({"machines": [one.as_json() for one in found]}, machines_lines(found), as_json=as_json)


@command("""
  edge-deploy roofline yolo11s.onnx
  edge-deploy roofline yolo11s.onnx --machine orin-nano-8gb-super
  edge-deploy roofline yolo11s.onnx --table gates.calib.json --machine orin-nx-16gb/15W --batch 8
  edge-deploy roofline yolo11s.onnx --machine edge-proof-gate-01.json
  edge-deploy roofline --list

\b
What the figures mean: docs/sizing.md""")
@click.argument("model", type=MODEL, required=False)
@click.option("--table", type=READ, metavar="TABLE", help="Calibration table: which layers INT8 keeps in float.")
@click.option(
    "--machine", "names", multiple=True, metavar="NAME[/MODE]", help="A machine of --list, or a proof's file; repeat."
)
@click.option(
    "--batch", type=click.IntRange(min=1), metavar="N", help="Frames at once; else what the model is fixed to, or 1."
)
@click.option("--list", "is_list", is_flag=True, help="All machines, and exit.")
def roofline(
    model: Path | None,
    table: Path | None,
    names: tuple[str, ...],
    batch: int | None,
    is_list: bool,
    as_json: bool,
) -> None:
    """Show what bounds a model on a machine before anybody buys it: compute or memory, layer by layer.

    The least time is a bound that follows from the machine's published figures, never a prediction: an engine takes
    longer. Without --machine all machines are compared; with one, each of its layers is shown, and what INT8 is worth.
    """
    if is_list:
        _list_machines(as_json=as_json)
        return
    if model is None:
        raise click.UsageError("name a MODEL, or --list for the machines")
    machines = [machine_named(name) for name in dict.fromkeys(names)] or list(all_machines())
    accounts = accounts_of(model, table=table, batch=batch)
    found = [roofline_of(accounts, machine) for machine in machines]
    for one in found if names else ():
        if not one.bounds:
            require_bound([*accounts.by_precision.values()][-1], one.machine)
    if as_json:
        echo_json(rooflines_as_json(accounts, found))
    else:
        echo_rooflines(accounts, found)

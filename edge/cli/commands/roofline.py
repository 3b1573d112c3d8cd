"""`edge-deploy roofline`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge.cli.paths import MODEL, READ, WRITTEN, command

if TYPE_CHECKING:
    from edge.cli.roofline_lines import Roofline
    from edge.quantize.account import PrecisionAccounts

__all__ = ["roofline"]


def _list_machines(ctx: click.Context, param: click.Parameter, is_asked: bool) -> None:
    if not is_asked or ctx.resilient_parsing:
        return
    from edge.cli.roofline_lines import machines_lines
    from edge.roofline.machines import all_machines, find_machine

    every = [
        found for one in all_machines() for found in (one, *(find_machine(f"{one.key}/{m}") for m in one.facts.modes))
    ]
    for line in machines_lines(every):
        click.echo(line)
    ctx.exit()


@command("""
  edge-deploy roofline yolo11s.onnx
  edge-deploy roofline yolo11s.onnx --machine orin-nano-8gb-super
  edge-deploy roofline yolo11s.onnx --table gates.calib.json --machine orin-nx-16gb/15W --batch 8 --html roof.html
  edge-deploy roofline yolo11s.onnx --machine edge-proof-gate-01.json
  edge-deploy roofline --list

\b
What the figures mean: docs/sizing.md""")
@click.argument("model", type=MODEL)
@click.option("--table", type=READ, metavar="TABLE", help="Calibration table: which layers INT8 keeps in float.")
@click.option(
    "--machine", "names", multiple=True, metavar="NAME[/MODE]", help="A machine of --list, or a proof's file; repeat."
)
@click.option(
    "--batch", type=click.IntRange(min=1), metavar="N", help="Frames at once; else what the model is fixed to, or 1."
)
@click.option(
    "--html", "page", type=WRITTEN, metavar="FILE", help="Also write a page with the picture of each machine."
)
@click.option(
    "--list", is_flag=True, is_eager=True, expose_value=False, callback=_list_machines, help="All machines, and exit."
)
def roofline(
    model: Path, table: Path | None, names: tuple[str, ...], batch: int | None, page: Path | None, as_json: bool
) -> None:
    """Show what bounds a model on a machine before anybody buys it: compute or memory, layer by layer.

    The least time is a bound that follows from the machine's published figures, never a prediction: an engine takes
    longer. Without --machine all machines are compared; with one, each of its layers is shown, and what INT8 is worth.
    """
    from edge.cli.output import echo_json
    from edge.cli.roofline_lines import roofline_of
    from edge.quantize.account import accounts_of
    from edge.roofline.machines import all_machines
    from edge.roofline.proof import machine_named

    if page is not None and not names:
        raise click.UsageError("--html draws the machines that are named: add --machine NAME; --list shows all")
    machines = [machine_named(name) for name in dict.fromkeys(names)] or list(all_machines())
    accounts = accounts_of(model, table=table, batch=batch)
    found = [roofline_of(accounts, machine) for machine in machines]
    if as_json:
        echo_json(_as_json(accounts, found))
    else:
        _echo(accounts, found)
    if page is not None:
        _write_page(page, accounts, found)


def _as_json(accounts: PrecisionAccounts, found: list[Roofline]) -> dict[str, Any]:
    return {
        "model": accounts.spec.name,
        "sha256": accounts.spec.sha256,
        "batch": next(iter(accounts.by_precision.values())).batch,
        "int8": accounts.origin_of_int8,
        "machines": [_machine_as_json(one) for one in found],
    }


def _machine_as_json(one: Roofline) -> dict[str, Any]:
    return {
        **one.machine.as_json(),
        "bounds": [bound.as_json() for bound in one.bounds],
        "worth_of_int8": None if one.worth is None else one.worth.as_json(),
    }


def _echo(accounts: PrecisionAccounts, found: list[Roofline]) -> None:
    from edge.cli.output import echo_parts
    from edge.cli.roofline_lines import bounds_verdict, roofline_summary_lines

    only = found[0] if len(found) == 1 and found[0].bounds else None
    for text in _remarks(accounts):
        click.echo(text, err=True)
    parts = [roofline_summary_lines(found)] if only is None else _parts_of_one(only)
    echo_parts([*parts, [bounds_verdict(found)]])


def _parts_of_one(only: Roofline) -> list[Iterable[str]]:
    from edge.cli.roofline_lines import (
        layer_bound_lines,
        lesson_lines,
        machine_lines,
        roofline_summary_lines,
        summary_sentences,
        worth_lines,
    )

    parts: list[Iterable[str]] = [
        machine_lines(only.machine),
        layer_bound_lines(only.fastest),
        roofline_summary_lines([only]),
        summary_sentences(only),
    ]
    if only.worth is not None:
        parts.append(worth_lines(only.worth))
    return [*parts, lesson_lines(only)]


def _remarks(accounts: PrecisionAccounts) -> list[str]:
    if accounts.why_no_int8 is not None:
        return [f"INT8 is not bounded: {accounts.why_no_int8}"]
    return [f"INT8 {accounts.origin_of_int8}"]


def _write_page(page: Path, accounts: PrecisionAccounts, found: list[Roofline]) -> None:
    from edge.calibrate.files import write_bytes
    from edge.cli.roofline_page import roofline_page

    write_bytes(page, roofline_page(accounts, found).encode())
    click.echo(f"{page} written", err=True)

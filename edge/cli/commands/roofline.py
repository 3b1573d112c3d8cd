"""`edge-deploy roofline`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge.cli.lazy import verbosity_option
from edge.cli.paths import MODEL, READ, WRITTEN, Command

if TYPE_CHECKING:
    from edge.cli.roofline_lines import Roofline
    from edge.quantize.account import PrecisionAccounts
    from edge.quantize.built import BuiltTimes

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


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  edge-deploy roofline yolo11s.onnx
  edge-deploy roofline yolo11s.onnx --machine orin-nano-8gb-super
  edge-deploy roofline yolo11s.onnx --table gates.calib.json --machine orin-nx-16gb/15W --batch 8 --html roof.html
  edge-deploy roofline yolo11s.onnx --machine this --table gates.calib.json --html here.html
  edge-deploy roofline --list

\b
What the figures mean: docs/rooflines.md""",
)
@click.argument("model", type=MODEL)
@click.option("--table", type=READ, metavar="TABLE", help="Calibration table: which layers INT8 keeps in float.")
@click.option(
    "--machine", "names", multiple=True, metavar="NAME[/MODE]", help="A machine of --list; this: measured here; repeat."
)
@click.option(
    "--batch", type=click.IntRange(min=1), metavar="N", help="Frames at once; else what the model is fixed to, or 1."
)
@click.option(
    "--built",
    "records",
    type=READ,
    multiple=True,
    metavar="FILE",
    help="build.json of an engine on a device: what INT8 was worth there; repeat.",
)
@click.option(
    "--html", "page", type=WRITTEN, metavar="FILE", help="Also write a page with the picture of each machine."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option(
    "--list", is_flag=True, is_eager=True, expose_value=False, callback=_list_machines, help="All machines, and exit."
)
@verbosity_option
def roofline(
    model: Path,
    table: Path | None,
    names: tuple[str, ...],
    batch: int | None,
    records: tuple[Path, ...],
    page: Path | None,
    as_json: bool,
) -> None:
    """Show what bounds a model on a machine before anybody buys it: compute or memory, layer by layer.

    The least time is a bound that follows from the machine's published figures, never a prediction: an engine takes
    longer. Without --machine all machines are compared; with one, each of its layers is shown, and what INT8 is worth.

    `--machine this` measures the machine that the command runs on, and how far below their bounds the layers are:
    in float, and with --table in INT8. `this/1` is the same on one core.

    --built holds what a device measured, INT8 against its fallback, against the bounds.
    """
    from edge.cli.output import echo_json
    from edge.quantize.account import accounts_of
    from edge.quantize.built import built_times

    if page is not None and not names:
        raise click.UsageError("--html draws the machines that are named: add --machine NAME; --list shows all")
    # Before anything is measured here, which takes half a minute.
    own = accounts_of(model, table=table, batch=batch) if records else None
    built = [] if own is None else [built_times(path, own) for path in records]
    accounts, found = _rooflines(model, table, names, batch)
    if as_json:
        echo_json({**_as_json(accounts, found), "built": [one.as_json() for one in built]})
    else:
        _echo(accounts, found, built)
    if page is not None:
        _write_page(page, accounts, found)


def _rooflines(
    model: Path, table: Path | None, names: tuple[str, ...], batch: int | None
) -> tuple[PrecisionAccounts, list[Roofline]]:
    from edge.cli.roofline_lines import roofline_of
    from edge.quantize.account import accounts_of
    from edge.quantize.this_machine import cores_of, is_this_machine, precisions_here
    from edge.roofline.machines import all_machines, find_machine
    from edge.roofline.measured import THIS

    asked = dict.fromkeys(names)
    machines = {name: None if is_this_machine(name) else find_machine(name, beside=(THIS,)) for name in asked}
    cores = {name: cores_of(name) for name in asked if is_this_machine(name)}
    accounts = accounts_of(model, table=table, batch=batch)
    if not names:
        return accounts, [roofline_of(accounts, machine) for machine in all_machines()]
    own = accounts_of(model, table=table, batch=batch, remainder=precisions_here()[0]) if cores else accounts
    found = [
        _measured(own, cores[name]) if machine is None else roofline_of(accounts, machine)
        for name, machine in machines.items()
    ]
    return accounts if len(cores) < len(names) else own, found


def _measured(accounts: PrecisionAccounts, cores: int) -> Roofline:
    from edge.cli.output import progress_bar
    from edge.cli.roofline_lines import roofline_of
    from edge.quantize.this_machine import ROUNDS, measured_here

    with progress_bar("measuring", total=ROUNDS) as bar:
        measured = measured_here(accounts, cores=cores, on_round=bar.advance)
    return roofline_of(accounts, measured.machine, measured=measured)


def _as_json(accounts: PrecisionAccounts, found: list[Roofline]) -> dict[str, Any]:
    return {
        "model": accounts.spec.name,
        "sha256": accounts.spec.sha256,
        "batch": next(iter(accounts.by_precision.values())).batch,
        "int8": accounts.origin_of_int8,
        "machines": [_machine_as_json(one) for one in found],
    }


def _machine_as_json(one: Roofline) -> dict[str, Any]:
    found = {
        **one.machine.as_json(),
        "bounds": [bound.as_json() for bound in one.bounds],
        "worth_of_int8": None if one.worth is None else one.worth.as_json(),
    }
    if one.measured is None:
        return found
    why_not = {kind.value: why for kind, why in one.measured.why_not.items()}
    models = [model.as_json() for model in one.measured.models.values()]
    return {
        **found,
        "noise": round(one.measured.machine.noise, 4),
        "measured": models,
        "not_measured": why_not,
        "measured_times_faster": one.measured.times_faster,
    }


def _echo(accounts: PrecisionAccounts, found: list[Roofline], built: list[BuiltTimes]) -> None:
    from edge.cli.roofline_lines import machine_lines, roofline_summary_lines
    from edge.cli.roofline_worth import built_lines

    only = found[0] if len(found) == 1 and found[0].bounds else None
    parts = [roofline_summary_lines(found)] if only is None else _parts_of_one(only)
    if only is None:
        parts = [*([*machine_lines(one.machine)] for one in found if one.measured is not None), *parts]
    if built:
        parts.append(built_lines(built, None if only is None else only.worth))
    click.echo("\n\n".join("\n".join(part) for part in parts))
    for text in _remarks(accounts):
        click.echo(text, err=True)


def _parts_of_one(only: Roofline) -> list[Iterable[str]]:
    from edge.cli.roofline_lines import (
        layer_bound_lines,
        lesson_lines,
        machine_lines,
        roofline_summary_lines,
        summary_sentences,
    )
    from edge.cli.roofline_measured import measured_layer_lines, measured_lines
    from edge.cli.roofline_worth import worth_lines

    measured = None if only.measured is None else list(only.measured.models.values())
    layers = measured_layer_lines(measured[-1]) if measured else layer_bound_lines(only.fastest)
    parts: list[Iterable[str]] = [
        machine_lines(only.machine),
        layers,
        roofline_summary_lines([only]),
        summary_sentences(only),
    ]
    if only.measured is not None:
        parts.append(measured_lines(only.measured))
    if only.worth is not None:
        times = None if only.measured is None else only.measured.times_faster
        parts.append(worth_lines(only.worth, times_measured=times))
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

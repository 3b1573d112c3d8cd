"""`edge-deploy reset`."""

from __future__ import annotations

from pathlib import Path

import click

from edge.cli.fleet import targets_option
from edge.cli.lazy import verbosity_option
from edge.cli.paths import READ_FILE, WRITTEN, Command

__all__ = ["reset"]


def _counts(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """`stable=7`: a channel and what it shall count."""
    counts: dict[str, int] = {}
    for value in values:
        channel, _, count = value.partition("=")
        if not channel or not count.isascii() or not count.isdigit():
            raise click.BadParameter(f"expected CHANNEL=N, got {value!r}", ctx=ctx, param=param)
        counts[channel] = int(count)
    return counts


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  edge-deploy reset gate-01 --key ~/.ssh/release
  edge-deploy reset gate-01 --key ~/.ssh/release -o gate-01.reset
  edge-deploy reset gate-01 --apply gate-01.reset""",
)
@click.argument("target", metavar="TARGET")
@targets_option
@click.option("--key", type=READ_FILE, metavar="KEY", help="SSH key that signs it. Default: the first of ~/.ssh.")
@click.option(
    "--sequence",
    "sequences",
    multiple=True,
    callback=_counts,
    metavar="CHANNEL=N",
    help="What it shall count, for all of its channels. Default: the time in seconds, for each.",
)
@click.option("--expires-days", type=click.IntRange(1, 30), default=1, show_default=True, help="Not used later.")
@click.option("-o", "--out", type=WRITTEN, metavar="FILE", help="Write it and FILE.sig instead of applying it.")
@click.option("--apply", "given", type=READ_FILE, metavar="FILE", help="Apply one that was written, with FILE.sig.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@verbosity_option
def reset(
    target: str,
    targets_path: Path | None,
    key: Path | None,
    sequences: dict[str, int],
    expires_days: int,
    out: Path | None,
    given: Path | None,
    as_json: bool,
) -> None:
    """Set the counters of one device anew: for one that refuses every release, because it took one from far ahead.

    It is signed for this device and the counters that it has now, and is used once. The signer's line on the device has
    to allow the namespace edge-device-reset (provision --downgrade-signer). What serves goes on; releases that were
    signed before have to be bundled again.
    """
    from datetime import datetime, timezone

    from edge.cli.fleet import choose
    from edge.delivery.options import DeliveryOptions
    from edge.deploy.fleet.over_ssh import connect_to_installed
    from edge.deploy.packing.keys import find_key
    from edge.deploy.push.reset import apply_reset, counters_at, make_reset, read_reset, write_reset

    chosen = choose((target,), targets_path).targets
    if len(chosen) != 1:
        raise click.UsageError(f"{target} means {len(chosen)} targets; a reset is for one")
    if given is not None and (key is not None or sequences or out is not None):
        raise click.UsageError("--apply takes a reset as it was signed; leave --key, --sequence and --out out")
    one = chosen[0]

    if given is not None:
        order = read_reset(given)
    else:
        order = make_reset(
            counters_at(lambda: connect_to_installed(one)),
            one.name,
            key=find_key(key),
            now=datetime.now(timezone.utc),
            sequences=sequences or None,
            expires_days=expires_days,
        )
    if out is not None:
        write_reset(order, out)
        _tell({"reset": str(out), "target": one.name}, as_json=as_json)
        return
    answer = apply_reset(lambda: connect_to_installed(one), order, who=DeliveryOptions().who)
    _tell({"target": one.name, "sequences": dict(answer.sequences), "signer": answer.signer}, as_json=as_json)


def _tell(values: dict[str, object], *, as_json: bool) -> None:
    from edge.cli.fleet_rows import printable
    from edge.cli.output import echo_json, echo_pairs

    if as_json:
        echo_json(values)
    else:
        echo_pairs([(name, printable(str(value))) for name, value in values.items()])

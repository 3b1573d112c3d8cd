"""`edge-deploy withdraw`."""

from __future__ import annotations

from pathlib import Path

import click

from edge.cli.paths import command
from edge.cli.ring_options import SPAN, ca_option, key_option, login_option, release_argument

__all__ = ["withdraw"]


@command("""
  edge-deploy withdraw registry.example/farms/gates:3f9a1c07b2de --why "overheats in the sun"
  edge-deploy withdraw registry.example/farms/gates:3f9a1c07b2de --lift""")
@release_argument
@click.option("--why", metavar="TEXT", help="The reason, kept with it.")
@click.option("--lift", "is_lifted", is_flag=True, help="Take a withdrawal back; no ring has the release by that.")
@click.option(
    "--valid", "valid_s", type=SPAN, default="30d", show_default=True, help="Of what is stated for its rings."
)
@key_option
@ca_option
@login_option
def withdraw(
    where: str,
    why: str | None,
    is_lifted: bool,
    valid_s: float,
    key: Path | None,
    ca: Path | None,
    login_path: Path | None,
) -> int:
    """Let no further device take a release, whatever is promoted now or later: only --lift takes that back.

    Its rings have nothing to take then. Devices that have it keep it: edge-deploy rollback, or a newer release, brings
    them to another.
    """
    from edge.cli.ring_options import opened
    from edge.deploy.provision.keys import find_key
    from edge.deploy.rings.promote import Promoter

    if is_lifted == (why is not None):
        raise click.UsageError("say --why TEXT, or --lift")
    with opened(where, login_path, ca) as (desk, release):
        name = release.manifest.release
        if is_lifted:
            desk.lift(name)
            click.echo(f"release {name} may be promoted again")
            return 0
        rings = Promoter(desk, find_key(key), valid_s=valid_s).withdraw(name, release.manifest.channel, why or "")
    click.echo(f"no further device takes release {name}; it is gone from: {', '.join(rings) or 'no ring'}")
    return 0

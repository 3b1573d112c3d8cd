"""`edge-deploy open`."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import webbrowser
from collections.abc import Iterator
from html import escape
from pathlib import Path

import click

from edge.cli.commands.run import stop_on_signals
from edge.cli.fleet import choose, targets_option
from edge.cli.paths import command
from edge.cli.run_command import INTERRUPTED, tell
from edge.deploy.fleet.over_ssh import connect_to
from edge.deploy.open import DevicePage

__all__ = ["open_page"]


@command(
    """
  edge-deploy open gate-01
  edge-deploy open gate-01 --browser
  edge-deploy open gate-01 --port 8080

The page shows each camera with its boxes, rates, drops, latency, messages, heat, the release and the last switch.
It is served on this machine only, under an address that cannot be guessed, until Ctrl-C; the device opens no port.
docs/operating.md says more.""",
    name="open",
)
@click.argument("target")
@targets_option
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Of this machine; default: a free one.")
@click.option("--browser", "has_browser", is_flag=True, help="Show it in the browser at once.")
def open_page(target: str, targets_path: Path | None, port: int | None, has_browser: bool, as_json: bool) -> int:
    """Show the status page of a device in the browser, over the same SSH as a push, until Ctrl-C."""
    chosen = choose((target,), targets_path).targets
    if len(chosen) != 1:
        raise click.UsageError(f"{target} means {len(chosen)} devices; name one")
    page = DevicePage(lambda: connect_to(chosen[0]), port=port or 0)
    with contextlib.closing(page):
        address = page.open()
        with stop_on_signals() as stop, _in_browser(address) if has_browser else contextlib.nullcontext():
            click.echo(json.dumps({"target": chosen[0].name, "url": address}) if as_json else address)
            tell("Ctrl-C ends it")
            while not stop.wait(1.0):
                pass
    if stop.is_interrupted:
        tell("interrupted")
        return INTERRUPTED
    return 0


@contextlib.contextmanager
def _in_browser(address: str) -> Iterator[None]:
    """Lead the browser there by a file that only this user can read: a command line shows to everybody."""
    folder = os.environ.get("XDG_RUNTIME_DIR") or None
    with tempfile.NamedTemporaryFile("w", suffix=".html", prefix="edge-deploy-", dir=folder) as file:
        file.write(f'<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={escape(address)}">\n')
        file.flush()
        if not webbrowser.open(Path(file.name).as_uri()):
            tell("no browser was found; open the address above")
        yield

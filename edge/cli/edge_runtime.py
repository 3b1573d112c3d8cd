"""`edge-runtime`: the device's command."""

from __future__ import annotations

from typing import NoReturn

import click

from edge.cli.border import run_command
from edge.cli.lazy import LazyCommand, LazyGroup, verbosity_option
from edge.version import __version__

__all__ = ["edge_runtime", "main"]

_COMMANDS = {
    "run": LazyCommand("edge.cli.commands.run", "run", "Decode, infer and publish, until stopped."),
    "bench": LazyCommand("edge.cli.commands.bench", "bench", "Frames per second, latency per stage, CPU per frame."),
    "doctor": LazyCommand("edge.cli.commands.doctor", "doctor", "What this machine has, and what is missing."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="edge-runtime")
@verbosity_option
def edge_runtime() -> None:
    """Many cameras, one batch, detections over MQTT."""


def main() -> NoReturn:
    """Run the command."""
    run_command(edge_runtime, is_service=True)


if __name__ == "__main__":
    main()

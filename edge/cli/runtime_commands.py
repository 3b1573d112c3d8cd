"""The commands of `edge-runtime` that people start; the light ones of `edge.runtime.entry` are listed among them."""

from __future__ import annotations

import functools

import click

from edge.cli.lazy import LazyCommand, LazyGroup, verbosity_option
from edge.runtime.entry import COMMANDS, main
from edge.version import __version__

__all__ = ["edge_runtime"]


class _LightCommand(LazyCommand):
    """A light command, where the group lists it or a `-v` stands before it."""

    def load(self) -> click.Command:
        return _light(self.attribute)


@functools.cache
def _light(name: str) -> click.Command:
    def run(arguments: tuple[str, ...]) -> int:
        return main(name, arguments)

    settings = {"ignore_unknown_options": True, "help_option_names": []}
    argument = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    return click.command(name, context_settings=settings, add_help_option=False)(argument(run))


_COMMANDS = {
    "run": LazyCommand("edge.cli.commands.run", "run", "Decode, infer and publish, until stopped."),
    "build": LazyCommand("edge.cli.commands.build", "build", "Make the engine of a release, and prove it."),
    "bench": LazyCommand("edge.cli.commands.bench", "bench", "Frames per second, latency per stage, CPU per frame."),
    "doctor": LazyCommand("edge.cli.commands.doctor", "doctor", "What this machine has, and what is missing."),
    "prove": LazyCommand("edge.cli.commands.prove", "prove", "What works on this machine, measured, as one file."),
    **{name: _LightCommand("edge.runtime.entry", name, summary) for name, (summary, _) in COMMANDS.items()},
}


@click.group(
    cls=LazyGroup,
    lazy=_COMMANDS,
    other=LazyCommand("edge.cli.edge_deploy", "edge_deploy", "edge-deploy"),
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="On a workstation, for models and devices: edge-deploy --help",
)
@click.version_option(__version__, prog_name="edge-runtime")
@verbosity_option
def edge_runtime() -> None:
    """Many cameras, one batch, detections over MQTT."""

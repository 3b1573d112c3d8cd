"""`edge-deploy`: the workstation's command."""

from __future__ import annotations

from typing import NoReturn

import click

from edge.cli.lazy import LazyCommand, LazyGroup, verbosity_option
from edge.cli.run_command import run_command
from edge.version import __version__

__all__ = ["edge_deploy", "main"]

_COMMANDS = {
    "demo": LazyCommand("edge.cli.commands.demo", "demo", "Everything on four synthetic cameras, in one go."),
    "new": LazyCommand("edge.cli.commands.new", "new", "From cameras and a model to a pipeline file that runs."),
    "inspect": LazyCommand(
        "edge.cli.commands.inspect", "inspect", "What an ONNX file is: family, input, labels, obstacles."
    ),
    "calibrate": LazyCommand("edge.cli.commands.calibrate", "calibrate", "The table with which a model runs in INT8."),
    "evaluate": LazyCommand("edge.cli.commands.evaluate", "evaluate", "COCO mAP of a model on labelled images."),
    "compare": LazyCommand("edge.cli.commands.compare", "compare", "Layer by layer: what INT8 loses and saves."),
    "roofline": LazyCommand(
        "edge.cli.commands.roofline", "roofline", "Before buying: what bounds a model on a machine, layer by layer."
    ),
    "capacity": LazyCommand(
        "edge.cli.commands.capacity",
        "capacity",
        "Before buying: how many cameras a machine serves, what runs out first.",
    ),
    "table": LazyCommand(
        "edge.cli.commands.table", "table", "Calibration tables: show, lint, diff; TensorRT caches and Q/DQ in and out."
    ),
    "provision": LazyCommand(
        "edge.cli.commands.provision", "provision", "First installation of a device, planned and undoable."
    ),
    "bundle": LazyCommand("edge.cli.commands.bundle", "bundle", "A pipeline as a signed folder, ready to be pushed."),
    "push": LazyCommand("edge.cli.commands.push", "push", "A release onto devices, judged there, undone if it is bad."),
    "publish": LazyCommand(
        "edge.cli.commands.publish", "publish", "A release into an OCI registry, from where devices fetch it."
    ),
    "rollout": LazyCommand(
        "edge.cli.commands.rollout", "rollout", "A published release from ring to ring, by what its devices say."
    ),
    "status": LazyCommand("edge.cli.commands.status", "status", "What devices run, and how they are."),
    "open": LazyCommand("edge.cli.commands.open", "open_page", "The status page of a device, with live pictures."),
    "rollback": LazyCommand("edge.cli.commands.rollback", "rollback", "Back to the release before, or to one by name."),
    "reset": LazyCommand("edge.cli.commands.reset", "reset", "New counters for a device that was led far ahead."),
    "confirm": LazyCommand("edge.cli.commands.confirm", "confirm", "Yes, the release on trial may stay."),
    "logs": LazyCommand("edge.cli.commands.logs", "logs", "The last lines of a device's journal."),
    "targets": LazyCommand(
        "edge.cli.commands.targets", "targets", "The inventory: who there is, and how each is reached."
    ),
    "listen": LazyCommand("edge.cli.commands.listen", "listen", "See what a subscriber sees; name missing messages."),
    "doctor": LazyCommand("edge.cli.commands.doctor", "doctor", "What this machine has, and what is missing."),
}


@click.group(
    cls=LazyGroup,
    lazy=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start here: edge-deploy demo",
)
@click.version_option(__version__, prog_name="edge-deploy")
@verbosity_option
def edge_deploy() -> None:
    """Calibrated, proven YOLO on edge devices: make it, measure it, watch it."""


def main() -> NoReturn:
    """Run the command."""
    run_command(edge_deploy)


if __name__ == "__main__":
    main()

"""`edge-deploy`: the workstation's command."""

from __future__ import annotations

from typing import NoReturn

import click

from edge.cli.lazy import LazyCommand, LazyGroup, verbosity_option
from edge.cli.run_command import run_command
from edge.version import __version__

__all__ = ["edge_deploy", "main"]

_SUMMARIES = {
    "demo": "Everything on four synthetic cameras, in one go.",
    "new": "From cameras and a model to a pipeline file that runs.",
    "inspect": "What an ONNX file is: family, input, labels, obstacles.",
    "calibrate": "The table with which a model runs in INT8.",
    "evaluate": "COCO mAP of a model on labelled images.",
    "compare": "Layer by layer: what INT8 loses and saves.",
    "roofline": "Before buying: what bounds a model on a machine, layer by layer.",
    "capacity": "Before buying: how many cameras a machine serves, what runs out first.",
    "table": "Calibration tables: show, lint, diff; TensorRT caches and Q/DQ in and out.",
    "provision": "First installation of a device, planned and undoable.",
    "bundle": "A pipeline as a signed folder, ready to be pushed.",
    "push": "A release onto devices, judged there, undone if it is bad.",
    "publish": "A release into an OCI registry, from where devices fetch it.",
    "promote": "A published release to a ring, at once or when another is well.",
    "trust": "Whose signatures count, signed by a root key.",
    "withdraw": "A release is stopped for every ring; no further device takes it.",
    "fleet": "Which release each device runs since when, and its health.",
    "status": "What devices run, and how they are.",
    "open": "The status page of a device, with live pictures.",
    "rollback": "Back to the release before, or to one by name.",
    "confirm": "Yes, the release on trial may stay.",
    "logs": "The last lines of a device's journal.",
    "targets": "The inventory: its devices, and how each is reached.",
    "listen": "See what a subscriber sees; name missing messages.",
    "prove": "What works on a device, measured, as one file.",
    "doctor": "What this machine has, and what is missing.",
}
_ELSEWHERE = {
    "open": ("open", "open_page"),
    "prove": ("prove_targets", "prove"),
    "rollback": ("push", "rollback"),
    "confirm": ("push", "confirm"),
    "logs": ("status", "logs"),
    "withdraw": ("promote", "withdraw"),
}


@click.group(
    cls=LazyGroup,
    lazy={
        name: LazyCommand("edge.cli.commands." + module, attribute, text)
        for name, text in _SUMMARIES.items()
        for module, attribute in [_ELSEWHERE.get(name, (name, name))]
    },
    other=LazyCommand("edge.cli.runtime_commands", "edge_runtime", "edge-runtime"),
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start here: edge-deploy demo. To run a pipeline: edge-runtime --help",
)
@click.version_option(__version__, prog_name="edge-deploy")
@verbosity_option
def edge_deploy() -> None:
    """Calibrated, proven YOLO on edge devices: make it, measure it, watch it."""


def main() -> NoReturn:
    run_command(edge_deploy)


if __name__ == "__main__":
    main()

"""`edge-deploy evaluate`."""

from __future__ import annotations

from pathlib import Path

import click

from edge.cli.lazy import verbosity_option
from edge.types import Precision

__all__ = ["evaluate"]


@click.command(
    epilog="""\b
Examples:
  edge-deploy evaluate yolo11s.onnx --images val/images --labels val/labels
  edge-deploy evaluate yolo11s.onnx --images val2017 --labels instances_val2017.json --json"""
)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--images", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Folder of images.")
@click.option(
    "--labels",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR|FILE",
    help="YOLO .txt folder or COCO .json.",
)
@click.option(
    "--precision",
    type=click.Choice([one.value for one in Precision]),
    default="fp32",
    show_default=True,
    help="Arithmetic of the engine.",
)
@click.option("--pycocotools", "is_cross_checked", is_flag=True, help="Also measure with pycocotools (extra: coco).")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@verbosity_option
def evaluate(model: Path, images: Path, labels: Path, precision: str, is_cross_checked: bool, as_json: bool) -> None:
    """Measure COCO mAP on labelled images, through exactly what the device runs.

    Every candidate above a score of 0.001 counts, suppressed at an IoU of 0.65, at most 300 per image (COCO: the
    best 100). Images without labels are taken as empty, and counted.
    """
    from edge.cli.output import echo_json, echo_pairs, progress_bar
    from edge.deploy.evaluation import EvaluationOptions, evaluate_model
    from edge.media.stills import list_images

    options = EvaluationOptions(
        model=model, images=images, labels=labels, precision=Precision(precision), is_cross_checked=is_cross_checked
    )
    with progress_bar("evaluate", total=len(list_images(images))) as bar:
        result = evaluate_model(options, on_image=lambda done, total: bar.advance())
    content = result.as_json()
    if as_json:
        echo_json(content)
        return
    echo_pairs(
        [
            ("model", f"{content['model']} ({result.spec.family.value}), {content['precision']}, {content['engine']}"),
            ("images", f"{content['images']} with {content['boxes']} boxes, {content['unlabelled']} without labels"),
            ("mAP50-95", f"{content['map50_95']:.4f}"),
            ("mAP50", f"{content['map50']:.4f}"),
            ("time", f"{content['seconds']} s"),
        ]
    )
    if result.left_out:
        click.echo(f"{result.left_out} boxes of classes that the model does not know were left out", err=True)
    if result.pycocotools is not None:
        echo_pairs([("pycocotools", f"mAP50-95 {result.pycocotools[0]:.4f}, mAP50 {result.pycocotools[1]:.4f}")])

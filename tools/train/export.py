"""Writes the trained detector as ONNX, in the shape and with the metadata of an Ultralytics YOLOv8 export."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from tools.street.scene import CLASSES
from tools.train.data import CANVAS_PX
from tools.train.network import Conv, Detector, Exported

__all__ = ["export_onnx", "fold_batch_norms", "metadata"]

_OPSET = 17


def fold_batch_norms(detector: Detector) -> Detector:
    """Return a copy in evaluation mode whose batch norms are part of the convolutions before them."""
    folded = copy.deepcopy(detector)
    folded.eval()
    for module in folded.modules():
        if isinstance(module, Conv):
            assert isinstance(module.bn, nn.BatchNorm2d)
            module.conv = nn.utils.fuse_conv_bn_eval(module.conv, module.bn)
            module.bn = nn.Identity()
    return folded


def metadata() -> Mapping[str, str]:
    """Return what a reader of the file needs to know, under the keys that Ultralytics writes."""
    return {
        "description": "Small traffic detector, trained on the synthetic scenes of tools.street.scene",
        "author": "edge-deploy",
        "version": "1",
        "license": "Apache-2.0",
        "task": "detect",
        "stride": "32",
        "batch": "1",
        "imgsz": f"[{CANVAS_PX}, {CANVAS_PX}]",
        "names": str(dict(enumerate(CLASSES))),
    }


def export_onnx(detector: Detector, path: Path) -> None:
    """Write `path`: input `images` float32 `(batch, 3, 320, 320)`, output `output0` float32 `(batch, 4 + K, 2100)`.
    Raises onnx.checker.ValidationError if the written graph is not valid.
    """
    import onnx

    graph = Exported(fold_batch_norms(detector), CANVAS_PX).eval()
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        # The TorchScript exporter is deprecated, but needs no further package, and Ultralytics' exports are made by it.
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            graph,
            (torch.zeros(1, 3, CANVAS_PX, CANVAS_PX),),
            str(path),
            opset_version=_OPSET,
            input_names=["images"],
            output_names=["output0"],
            dynamic_axes={"images": {0: "batch"}, "output0": {0: "batch"}},
            dynamo=False,
        )
    model = onnx.load(path)
    for dim, length in zip(model.graph.output[0].type.tensor_type.shape.dim[1:], graph.output_shape, strict=True):
        dim.dim_value = length
    onnx.helper.set_model_props(model, dict(metadata()))
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)

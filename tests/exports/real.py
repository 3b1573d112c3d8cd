"""A program for the exporter's own Python: writes the exports that jobs name, by Ultralytics, with random weights.

Reads [{"name", "yaml", "options"}, ...] on its input; FOLDER is its argument. Nothing is fetched: a network comes from
its description, which lies in the package.
"""

import contextlib
import json
import re
import shutil
import sys
from pathlib import Path

import torch
import yaml
from ultralytics import YOLO, __version__
from ultralytics.utils import ROOT, SETTINGS

CLASSES = 3
MEAN, SPREAD = -3.5, 1.6
LOGITS, SIDES = (re.compile(rf"(one2one_)?cv{number}\.\d\.2") for number in (3, 2))


def described(name, folder):
    """Write the description called `name` with few classes, and return where."""
    plain = name.replace("yolo26n", "yolo26").replace("yolo12n", "yolo12").replace("yolo11n", "yolo11")
    plain = plain.replace("yolov8n", "yolov8").replace("yolov5n", "yolov5")
    found = next((ROOT / "cfg/models").rglob(plain))
    content = yaml.safe_load(found.read_text(encoding="utf-8"))
    content["nc"] = 1 if "pose" in name else CLASSES
    path = folder / name
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def make(job, folder):
    torch.manual_seed(0)
    model = YOLO(str(described(job["yaml"], folder)))
    settle(model.model)
    with contextlib.redirect_stdout(sys.stderr):
        made = model.export(format="onnx", device="cpu", **job["options"])
    shutil.move(made, folder / f"{job['name']}.onnx")


def settle(network):
    """Let random weights pass on what trained ones do: features of unit spread, few sure scores, sides above zero."""
    random = torch.Generator().manual_seed(1)
    picture = torch.nn.functional.interpolate(torch.rand(128, 3, 6, 6, generator=random), scale_factor=16)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    hooks = []
    with torch.no_grad():
        network.train()(picture)
        for name, module in network.model[-1].named_modules():
            if LOGITS.fullmatch(name):
                module.weight.normal_(0.0, 1.7 / module.in_channels**0.5, generator=random)
                hooks.append(module.register_forward_hook(spread))
            elif SIDES.fullmatch(name) and module.out_channels == 4:
                module.weight.normal_(0.0, 0.05 / module.in_channels**0.5, generator=random)
                module.bias.fill_(2.0)
        network.eval()(picture)
    for hook in hooks:
        hook.remove()


def spread(module, inputs, logits):
    """Give the logits of one level the spread that those of the tests' own builder have."""
    factor = SPREAD / logits.std()
    module.weight *= factor
    module.bias *= factor
    module.bias += MEAN - logits.mean() * factor


def main():
    SETTINGS["sync"] = False
    folder = Path(sys.argv[1])
    print(f"ultralytics {__version__}, torch {torch.__version__}", file=sys.stderr)
    told = {}
    for job in json.load(sys.stdin):
        try:
            make(job, folder)
            told[job["name"]] = None
        except Exception as error:
            told[job["name"]] = f"{type(error).__name__}: {error}"
    print(json.dumps(told))


if __name__ == "__main__":
    main()

"""Releases for stories: a synthetic street seen by two cameras, the demo's model, others like it, and short trials."""

import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import yaml

from edge.bundle.folder import Bundle, open_bundle, write_bundle
from edge.bundle.manifest import GoldenLimits, HealthLimits, Role, encode_manifest, release_name
from edge.bundle.sign import RELEASE, sign
from edge.calibrate.table import TensorRange, read_table, write_table
from edge.types import ImageSize
from tests.lab.image import slowness
from tests.lab.provisioning import ROOT, edge_deploy
from tests.support.manifests import bundled
from tools.street.encode import write_h264
from tools.street.samples import write_sample
from tools.street.scene import Scene

MODEL, TABLE = ROOT / "edge/demo/model/traffic.onnx", ROOT / "calib_cache/traffic.calib.json"
SIZE, FPS, CLIP_FRAMES, SAMPLES = ImageSize(width=640, height=360), 15, 60, 12
# Neither the demo's cameras, which made the table, nor the model's training.
CAMERA_SEEDS, SAMPLE_SEED, CALIBRATION_SEED = {"east": 31, "west": 33}, 777, 4711
CALIBRATION_IMAGES = 100
# On two cores that also run the workstation's side, when and how fast frames come says nothing about a release.
HEALTH = HealthLimits(
    hold_s=5, deadline_s=120 * slowness(), min_rate_share=0.3 / slowness(), max_slowdown=20 * slowness()
)
QUICK = dataclasses.replace(HEALTH, hold_s=3)
Content = Mapping[str, bytes]


def draw_cameras(folder: Path) -> Path:
    """Draw a clip for each camera and the golden images into `folder`; return it."""
    folder.mkdir(parents=True)
    for name, seed in CAMERA_SEEDS.items():
        scene = Scene(seed, SIZE)
        write_h264(folder / f"{name}.mp4", (scene.frame(i)[0] for i in range(CLIP_FRAMES)), size=SIZE, fps=FPS)
    scene = Scene(SAMPLE_SEED, SIZE)
    for index in range(SAMPLES):
        picture, truth = scene.frame(index * 29)
        write_sample(folder / "golden", f"sample-{index:02}", picture, truth)
    return folder


def write_pipeline(folder: Path, cameras: Path, *, port: int, **model: Any) -> Path:
    """Write `gates.yaml` with its model, table and clips into `folder`; the broker is the workstation."""
    folder.mkdir(parents=True)
    for path in (MODEL, TABLE, *(cameras / f"{name}.mp4" for name in CAMERA_SEEDS)):
        (folder / path.name).write_bytes(path.read_bytes())
    content = {
        "version": 1,
        "model": {"onnx": MODEL.name, "calibration": TABLE.name, "precision": "int8", **model},
        "engine": {"kind": "openvino", "threads": 1},
        "batch": {"max_frames": 2},
        "mqtt": {"host": "workstation", "port": port, "tls": False, "site": "lab"},
        "publish": {"mode": "all"},
        "streams": [
            {"id": name, "uri": f"{name}.mp4", "realtime": True, "loop": True, "max_fps": 5} for name in CAMERA_SEEDS
        ],
    }
    path = folder / "gates.yaml"
    path.write_text(json.dumps(content, indent=2))  # JSON is YAML
    return path


def another_table(path: Path) -> None:
    """Make the ranges of the table 2 % wider: another release, as good as the one before."""
    table = read_table(path)
    wider = {
        name: TensorRange(amax=one.amax * 1.02, method=one.method) if name != "images" else one
        for name, one in table.tensors.items()
    }
    write_table(path, msgspec.structs.replace(table, tensors=wider))


def retrained(folder: Path) -> None:
    """Give a pipeline's folder another model: weights that differ by 0.2 %, and a table calibrated from new images."""
    model = onnx.load(folder / MODEL.name)
    generator = np.random.default_rng(7)
    for weight in model.graph.initializer:
        values = onnx.numpy_helper.to_array(weight)
        if values.dtype == np.float32 and values.ndim == 4:
            moved = values * (1 + 0.002 * generator.standard_normal(values.shape))
            weight.CopyFrom(onnx.numpy_helper.from_array(moved.astype(np.float32), weight.name))
    onnx.save(model, folder / MODEL.name)
    scene = Scene(CALIBRATION_SEED, SIZE)
    for index in range(CALIBRATION_IMAGES):
        write_sample(folder / "calibration", f"seen-{index:03}", *scene.frame(index * 29))
    words = ("--images", str(folder / "calibration/images"), "--method", "mse", "-o", str(folder / TABLE.name))
    kept = [word for node in read_table(TABLE).keep_float for word in ("--keep-float", node)]
    made = edge_deploy("calibrate", str(folder / MODEL.name), *words, *kept)
    assert made.returncode == 0, made.stderr


def bundle(pipeline: Path, golden: Path, out: Path, key: Path) -> Bundle:
    words = ("--golden", str(golden), "--key", str(key), "-o", str(out), "--json")
    made = edge_deploy("bundle", str(pipeline), *words)
    assert made.returncode == 0, made.stderr
    return open_bundle(Path(json.loads(made.stdout)["bundle"]))


class Signer:
    """Makes releases of releases: other limits or other files, signed anew; each has a higher sequence."""

    def __init__(self, key: Path, out: Path) -> None:
        self._key, self._out = key, out
        self._sequence = int(time.time())

    def variant(
        self,
        of: Bundle,
        *,
        pipeline: Callable[[dict[str, Any]], None] | None = None,
        health: HealthLimits = HEALTH,
        golden: GoldenLimits | None = None,
        sequence: int | None = None,
        more: Content | None = None,
        software: Mapping[str, tuple[Role, bytes]] | None = None,
        lifetime: tuple[str, str] | None = None,
    ) -> Bundle:
        """Return a release like `of`, the pipeline changed in place by `pipeline`; `lifetime`: made at, expires at."""
        self._sequence += 1
        files: dict[str, tuple[Role, bytes]] = {
            one.path: (one.role, of.path_of(one).read_bytes()) for one in of.manifest.files
        }
        if pipeline is not None:
            files["pipeline.yaml"] = (Role.PIPELINE, _changed(files["pipeline.yaml"][1], pipeline))
        for name, content in (more or {}).items():
            files[name] = (Role.CLIP, content)
        files |= software or {}
        draft = dataclasses.replace(
            of.manifest,
            sequence=self._sequence if sequence is None else sequence,
            created_at=of.manifest.created_at if lifetime is None else lifetime[0],
            expires_at=of.manifest.expires_at if lifetime is None else lifetime[1],
            health=health,
            golden=golden or of.manifest.golden,
            files=tuple(bundled(path, role, content) for path, (role, content) in sorted(files.items())),
        )
        manifest = dataclasses.replace(draft, release=release_name(draft))
        content = encode_manifest(manifest)
        plain = {path: content for path, (_, content) in files.items()}
        signature = sign(content, self._key, RELEASE)
        return write_bundle(self._out, manifest, manifest_bytes=content, signature=signature, files=plain)


def _changed(content: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    values = yaml.safe_load(content)
    change(values)
    return json.dumps(values, indent=2).encode()


def length_bytes(bundle: Bundle) -> int:
    return sum(one.length_bytes for one in bundle.manifest.files)

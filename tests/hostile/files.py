"""The files of the table, in one folder: some good ones, and many that are not what they are taken for."""

import bz2
import gzip
import io
import lzma
import os
import pickle
import tarfile
import zipfile
from pathlib import Path

import cv2
import numpy as np
import onnx
from onnxruntime.quantization import quantize_dynamic

from tests.support import models, wrong_models
from tests.support.tables import calibrated

CACHE = "TRT-8601-EntropyCalibration2\n"
PIPELINE = "version: 1\nmodel: {onnx: good.onnx}\npublish: {jsonl: out.jsonl}\nstreams: "
STREAM = "[{id: a, uri: clip.mp4}]\n"

TEXTS = {
    "empty": "",
    "text.txt": "hello\n",
    "page.html": "<!DOCTYPE html><html><body>404</body></html>\n",
    "lfs.onnx": "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    "list.json": "[1, 2]\n",
    "cut.json": '{"format": "edge.calib/1", "tens',
    "deep.json": "[" * 100_000,
    "digits.json": '{"images": ' + "9" * 5000 + "}",
    "no-end.cache": f"{CACHE}a: 3fef",
    "short.cache": f"{CACHE}a: 3fef\n",
    "good.cache": f"{CACHE}a: 3c010204\n",
    "word.yaml": "word\n",
    "tab.yaml": "version: 1\n\tmodel: x\n",
    "alias.yaml": "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nversion: 1\n",
    "password.yaml": f"{PIPELINE}[{{id: a, uri: 'rtsp://me:secret@c/a'}}]\n",
    "no-clip.yaml": f"{PIPELINE}[{{id: a, uri: gone.mp4}}]\n",
    "no-model.yaml": f"{PIPELINE}{STREAM}".replace("good.onnx", "gone.onnx"),
    "no-output.yaml": f"version: 1\nmodel: {{onnx: good.onnx}}\nstreams: {STREAM}",
    "onto-model.yaml": f"{PIPELINE}{STREAM}".replace("out.jsonl", "good.onnx"),
    "onto-itself.yaml": f"{PIPELINE}{STREAM}".replace("out.jsonl", "onto-itself.yaml"),
    "batch.yaml": f"{PIPELINE}{STREAM}batch: {{max_frames: 0}}\n",
    "port.yaml": f"{PIPELINE}{STREAM}mqtt: {{host: b, port: 70000}}\n",
    "engine.yaml": f"{PIPELINE}{STREAM}engine: {{kind: abacus}}\n",
    "fallback.yaml": f"{PIPELINE}{STREAM}".replace("good.onnx", "good.onnx, fallback: fp16"),
    "good.yaml": f"{PIPELINE}{STREAM}",
    "word.toml": "word\n",
    "clip.mp4": "no clip\n",
}


def make_files(folder: Path) -> None:
    made = calibrated(folder, models.yolov8(folder / "good.onnx", batch=1))
    os.replace(made.table_with(), folder / "good.calib.json")
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "noise").write_bytes(np.random.default_rng(0).bytes(4096))
    (folder / "utf16.txt").write_bytes("version: 1\n".encode("utf-16"))
    (folder / "folder").mkdir()
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    (folder / "zero").symlink_to("/dev/zero")
    for name, inside in (("archive.zip", "good.onnx"), ("best.pt", "best/data.pkl")):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr(inside, b"content")
    odd = odd_kinds(folder)
    for name, content in odd.items():
        (folder / name).write_bytes(content)
    for name, content in {**odd, **{name: TEXTS[name].encode() for name in ("lfs.onnx", "page.html")}}.items():
        for place in (f"odd-{name}/0.jpg", f"odd-labels-{name}/0.txt"):
            (folder / place).parent.mkdir()
            (folder / place).write_bytes(content)
    (folder / "old.pt").write_bytes(pickle.dumps({"model": None}, protocol=2))
    _images(folder)
    _models(folder)


def odd_kinds(folder: Path) -> dict[str, bytes]:
    """Return files that people mix up with a model, a table, a picture, by name; their own writers make most."""
    good = (folder / "good.onnx").read_bytes()
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        archive.add(folder / "good.onnx", "good.onnx")
    picture = np.zeros((8, 8, 3), np.uint8)
    return {
        "model.engine": b"ptrt" + bytes(60),
        "yolo.engine": b'\x40\x00\x00\x00{"description": "Ultralytics YOLO11s model"' + bytes(60),
        "model.gz": gzip.compress(good),
        "model.bz2": bz2.compress(good),
        "model.xz": lzma.compress(good),
        "model.tar": tar.getvalue(),
        "model.h5": b"\x89HDF\r\n\x1a\n" + bytes(60),
        "model.tflite": b"\x1c\x00\x00\x00TFL3" + bytes(60),
        "shot.png": cv2.imencode(".png", picture)[1].tobytes(),
        "shot.jpg": cv2.imencode(".jpg", picture)[1].tobytes(),
        "shot.heic": b"\x00\x00\x00\x18ftypheic" + bytes(60),
        "paper.pdf": b"%PDF-1.7\n" + bytes(60),
    }


def _images(folder: Path) -> None:
    for name in ("pictures", "labels", "damaged", "wrong-labels"):
        (folder / name).mkdir(exist_ok=True)
    for number in range(4):
        pixels = np.random.default_rng(number).integers(0, 256, (96, 96, 3), np.uint8)
        cv2.imwrite(str(folder / f"pictures/{number}.png"), pixels)
        (folder / f"labels/{number}.txt").write_text("0 0.5 0.5 0.2 0.2\n")
        (folder / f"damaged/{number}.png").write_bytes(b"\x89PNG\r\n\x1a" + bytes([number]))
        (folder / f"wrong-labels/{number}.txt").write_text("0 0.5 0.5 7 x\n")


def _models(folder: Path) -> None:
    good = (folder / "good.onnx").read_bytes()
    (folder / "cut.onnx").write_bytes(good[: len(good) // 2])
    wrong_models.classifier(folder / "classifier.onnx")
    quantize_dynamic(folder / "good.onnx", folder / "dynamic.onnx")
    for name, size in (("negative.onnx", -96), ("flat.onnx", 0), ("huge.onnx", 1 << 40)):
        proto = onnx.load_model_from_string(good)
        proto.graph.input[0].type.tensor_type.shape.dim[2].dim_value = size
        (folder / name).write_bytes(proto.SerializeToString())
    for name in ("apart.onnx", "terabyte.onnx"):
        onnx.save(
            onnx.load_model_from_string(good), folder / name, save_as_external_data=True, location=f"{name}.data",
            size_threshold=0,
        )  # fmt: skip
    (folder / "apart.onnx.data").unlink()
    os.truncate(folder / "terabyte.onnx.data", 1 << 40)

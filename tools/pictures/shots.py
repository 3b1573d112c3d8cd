"""Each picture: what the product is asked for, and what of its answer is shown."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from edge.http.server import bind_port
from tools.pictures.browser import open_browser, shoot
from tools.pictures.terminal import Session, page_of, run_on_terminal, without_log

__all__ = ["SHOTS", "Demo", "picture_of", "run_demo"]

_MODEL = Path(__file__).parents[2] / "edge/demo/model/traffic.onnx"
_BIN = Path(sys.executable).parent
_TRACKING = {
    "zones": [{"id": "pavement", "polygon": [[0.02, 1.0], [0.3, 0.45], [0.42, 0.45], [0.28, 1.0]]}],
    "lines": [{"id": "gate", "start": [0.3, 0.75], "end": [0.85, 0.75]}],
}


@dataclass(frozen=True, slots=True)
class Demo:
    """A run of the demo: what it kept in `folder`, and what it showed meanwhile."""

    folder: Path
    session: Session


def run_demo(folder: Path, *, seconds: float) -> Demo:
    """Run the demo on a terminal. Raises SystemExit if it fails."""
    command = [str(_BIN / "edge-deploy"), "demo", "--seconds", f"{seconds:g}", "--keep", str(folder)]
    session = run_on_terminal(command, folder=folder.parent)
    if session.code != 0:
        raise SystemExit(f"{session.told}\n{session.stdout}")
    return Demo(folder, session)


def picture_of(png_or_jpeg: bytes, *, width_px: int) -> bytes:
    """Return it as WebP, not wider than `width_px`."""
    pixels = cv2.imdecode(np.frombuffer(png_or_jpeg, np.uint8), cv2.IMREAD_COLOR)
    assert pixels is not None
    height, width = pixels.shape[:2]
    if width > width_px:
        pixels = cv2.resize(pixels, (width_px, round(height * width_px / width)), interpolation=cv2.INTER_AREA)
    done, encoded = cv2.imencode(".webp", pixels, [cv2.IMWRITE_WEBP_QUALITY, 82])
    assert done
    return encoded.tobytes()


def _boxes(demo: Demo) -> bytes:
    """A frame with boxes, as `run --annotate` writes it."""
    _product(demo, "edge-deploy new", _model(demo), "camera-2.mp4", "-o", "first.yaml")
    _product(demo, "edge-runtime run --pipeline first.yaml --duration 4 --annotate look")
    return picture_of(sorted((demo.folder / "look").glob("*.jpg"))[-1].read_bytes(), width_px=640)


def _live(demo: Demo) -> bytes:
    """The terminal while the demo runs, without what is logged: that tells of the machine, such as how it sums INT8."""
    page = page_of(without_log(demo.session.screen), typed="make demo")
    return picture_of(shoot(page, width_px=1000), width_px=800)


def _compare(demo: Demo) -> bytes:
    words = "--table traffic.calib.json --images images --limit 8 --html compare.html"
    _product(demo, "edge-deploy compare", _model(demo), *words.split())
    return _top_of(demo.folder / "compare.html", height_px=735)


def _status_page(demo: Demo) -> bytes:
    """The status page of four cameras, of which one has a zone and a line."""
    with bind_port(0) as bound:
        port = int(bound.getsockname()[1])
    command = [_BIN / "edge-runtime", "run", "--pipeline", _crossing(demo.folder, port)]
    service = subprocess.Popen([str(word) for word in command], cwd=demo.folder, stderr=subprocess.DEVNULL)
    try:
        return picture_of(_photograph(f"http://127.0.0.1:{port}/"), width_px=1100)
    finally:
        service.terminate()
        service.wait(30)


def _crossing(folder: Path, port: int) -> Path:
    clips = sorted(folder.glob("camera-*.mp4"))
    streams: list[dict[str, Any]] = [
        {"id": clip.stem, "uri": clip.name, "loop": True, "realtime": True} for clip in clips
    ]
    streams[0]["tracking"] = _TRACKING
    content = {
        "version": 1,
        "device": "gate-01",
        "model": {"onnx": str(_MODEL)},
        "streams": streams,
        "publish": {"jsonl": "out.jsonl"},
        "http": {"port": port, "page": True},
    }
    path = folder / "crossing.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def _photograph(url: str) -> bytes:
    from playwright.sync_api import Error

    with open_browser() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 690}, color_scheme="light")
        for _ in range(100):
            try:
                page.goto(url)
                break
            except Error:
                page.wait_for_timeout(500)
        page.wait_for_function(
            "() => [...document.images].filter(one => one.naturalWidth).length === 4", timeout=60_000
        )
        page.wait_for_timeout(6000)  # until the rates are those of a service that has run a while
        return bytes(page.screenshot())


def _model(demo: Demo) -> str:
    """Put the model into the demo's folder, so that a page shows no path of this machine, and return its name."""
    (demo.folder / _MODEL.name).write_bytes(_MODEL.read_bytes())
    return _MODEL.name


def _top_of(page: Path, *, height_px: int) -> bytes:
    return picture_of(shoot(page.read_text("utf-8"), width_px=1100, height_px=height_px), width_px=1100)


def _product(demo: Demo, typed: str, *words: str) -> None:
    """Run one of our commands in the demo's folder. Raises SystemExit if it fails."""
    command = [*typed.split(), *words]
    done = subprocess.run(
        [str(_BIN / command[0]), *command[1:]], cwd=demo.folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")


SHOTS: Mapping[str, Callable[[Demo], bytes]] = {
    "boxes": _boxes,
    "live": _live,
    "compare": _compare,
    "status-page": _status_page,
}
"""By the name of the file."""

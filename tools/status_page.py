"""Make the picture of the status page that the docs show: the demo's cameras, served, in a real browser.

python -m tools.status_page docs/status-page.jpg
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from edge.demo.cameras import render_camera
from edge.http.sockets import bind_port

_MODEL = Path(__file__).parents[1] / "edge/demo/model/traffic.onnx"
_WIDTH_PX, _HEIGHT_PX = 1280, 690
_CAMERAS = 4
_TRACKING = {
    "zones": [{"id": "pavement", "polygon": [[0.02, 1.0], [0.3, 0.45], [0.42, 0.45], [0.28, 1.0]]}],
    "lines": [{"id": "gate", "start": [0.3, 0.75], "end": [0.85, 0.75]}],
}


def main() -> int:
    """Write the picture; 1 where no browser is installed."""
    browser = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if browser is None:
        sys.stderr.write("no chromium: apt install chromium-headless-shell\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        port = _free_port()
        pipeline = _pipeline(Path(folder), port)
        command = [sys.executable, "-m", "edge.cli.edge_runtime", "run", "--pipeline", str(pipeline)]
        service = subprocess.Popen(command, cwd=folder)
        try:
            _photograph(browser, f"http://127.0.0.1:{port}/", Path(sys.argv[1]))
        finally:
            service.terminate()
            service.wait(30)
    return 0


def _free_port() -> int:
    with bind_port(0) as bound:
        return int(bound.getsockname()[1])


def _pipeline(folder: Path, port: int) -> Path:
    cameras = [render_camera(number, folder, on_frame=lambda: None) for number in range(_CAMERAS)]
    streams: list[dict[str, Any]] = [
        {"id": one.name, "uri": one.path.name, "loop": True, "realtime": True} for one in cameras
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


def _photograph(browser: str, url: str, path: Path) -> None:
    from playwright.sync_api import Error, ViewportSize, sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport=ViewportSize(width=_WIDTH_PX, height=_HEIGHT_PX), device_scale_factor=0.8)
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
        page.screenshot(path=str(path), type="jpeg", quality=75)
        chromium.close()


if __name__ == "__main__":
    sys.exit(main())

"""A service in this process that shows itself on a socket file and a port, and a browser that looks at it."""

import contextlib
import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edge.runtime.look.pictures import Pictures
from edge.runtime.serve.serve import open_serving, serve_pipeline
from tests.support.http_client import ask
from tests.support.ports import free_port
from tests.support.wait import wait_until

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: chromium-headless-shell")


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """`pictures` is the service's own; what it has encoded is in there. `reload` has `pipeline` read again."""

    pipeline: Path
    reload: threading.Event
    port: int
    socket_path: Path
    pictures: Pictures

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"


@contextlib.contextmanager
def showing(folder: Path, *, streams: list[dict[str, Any]], health: Path, **content: Any) -> Iterator[Showing]:
    """Serve a pipeline within the block; `content` are further keys of its file."""
    port = free_port()
    whole = {
        "version": 1,
        "device": "dev",
        "streams": streams,
        "publish": {"jsonl": "out.jsonl"},
        "http": {"port": port, "page": True},
        **content,
    }
    (folder / "p.yaml").write_text(json.dumps(whole))
    health.parent.mkdir(parents=True, exist_ok=True)
    serving = open_serving(path=folder / "p.yaml", release_dir=None, health=health)
    parts = serving.build()
    stop, reload = threading.Event(), threading.Event()
    thread = threading.Thread(target=serve_pipeline, args=(parts, serving.heartbeat, stop), kwargs={"reload": reload})
    thread.start()
    try:
        wait_until(lambda: _is_ready(port), what="the service is ready")
        pictures = parts.inference.onlookers[0]
        assert isinstance(pictures, Pictures)
        yield Showing(
            pipeline=folder / "p.yaml",
            reload=reload,
            port=port,
            socket_path=health.with_name("http.sock"),
            pictures=pictures,
        )
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


def _is_ready(port: int) -> bool:
    try:
        return ask(port, "/readyz")[0] == 200
    except OSError:
        return False


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Tests may run as root, for whom Chromium has no sandbox; it opens nothing but our own pages.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()

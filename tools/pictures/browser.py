"""A headless browser that photographs pages."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

__all__ = ["browser_path", "open_browser", "shoot"]


def browser_path() -> str | None:
    """Return where Chromium is; None: it is not installed."""
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


@contextlib.contextmanager
def open_browser() -> Iterator[Any]:
    """Give a browser, of playwright's kind. Raises SystemExit if none is installed."""
    from playwright.sync_api import sync_playwright

    path = browser_path()
    if path is None:
        raise SystemExit("no chromium: apt install chromium-headless-shell")
    with sync_playwright() as playwright:
        # Root has no sandbox; nothing but our own pages is opened.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def shoot(html: str, *, width_px: int, height_px: int | None = None) -> bytes:
    """Return a PNG of a page, in its light colours: its first `height_px`, or what its <pre> covers."""
    with open_browser() as browser:
        page = browser.new_page(
            viewport={"width": width_px, "height": height_px or 100}, device_scale_factor=1, color_scheme="light"
        )
        page.set_content(html)
        return bytes(page.screenshot() if height_px else page.locator("pre").screenshot())

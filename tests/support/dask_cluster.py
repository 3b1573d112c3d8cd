"""A real Dask scheduler and real workers, each a process of its own, that can be killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
STARTED_S = 60.0


class DaskCluster:
    """Args: folder: for their files. options: of the scheduler and of every worker."""

    def __init__(self, folder: Path, *options: str, listen: str = "tcp://127.0.0.1:0") -> None:
        self._folder = folder
        self._options = options
        self._file = folder / "scheduler.json"
        folder.mkdir(parents=True, exist_ok=True)
        self.workers: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start(
            "dask_scheduler", "--host", listen, "--port", "0", "--scheduler-file", str(self._file), "--no-dashboard"
        )
        wait_until(self._has_address, what="scheduler", timeout_s=STARTED_S)

    @property
    def address(self) -> str:
        return str(json.loads(self._file.read_text())["address"])

    def start_worker(
        self, *, cwd: Path | None = None, env: Mapping[str, str] | None = None, threads: int = 1
    ) -> subprocess.Popen[bytes]:
        before = self._registered()
        worker = self._start(
            "dask_worker", self.address, "--nthreads", str(threads), "--no-nanny", "--no-dashboard",
            "--name", f"w{before}", "--memory-limit", "0", "--local-directory", str(self._folder / "scratch"),
            cwd=cwd or self._folder, env=env,
        )  # fmt: skip
        self.workers.append(worker)
        wait_until(lambda: self._registered() > before, what="worker", timeout_s=STARTED_S)
        return worker

    def _registered(self) -> int:
        return (self._folder / "dask_scheduler.log").read_text().count("Register worker")

    def kill_worker(self, worker: subprocess.Popen[bytes]) -> None:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        self.workers.remove(worker)

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()

    def _has_address(self) -> bool:
        assert self.scheduler.poll() is None, "the scheduler has ended"
        try:
            return bool(self.address)
        except (OSError, ValueError):
            return False

    def _start(
        self, program: str, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with (self._folder / f"{program}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{program}", *arguments, *self._options],
                cwd=cwd or self._folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

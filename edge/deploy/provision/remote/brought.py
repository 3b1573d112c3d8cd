"""The step that has what releases bring laid over what is installed now, and says what cannot be."""

from __future__ import annotations

import json
import os
import subprocess

from edge.deploy.provision.remote.contents import open_file_in, read
from edge.deploy.provision.remote.files import Step
from edge.deploy.provision.remote.folders import open_folder, open_parent
from edge.deploy.provision.remote.tools import Conflict, Record, run

__all__ = ["Brought"]

_UNIT = "edge-software.service"
_WITHIN_S = 600.0
_MOST = 500


class Brought(Step):
    """Software of releases, over `over`. Root starts the unit and reads what that has said; it runs none of it."""

    def check(self) -> list[str]:
        """Have it laid over what is installed, unless that was done."""
        is_done = (self.record or {}).get("over") == self.values["over"]
        return [] if is_done else [f"lay what releases bring over {self.values['over']}"]

    def apply(self) -> Record:
        """Start the unit and wait for it; one that is at work already would do so over what was there before."""
        run(["systemctl", "daemon-reload"])
        try:
            done = subprocess.run(
                ["systemctl", "restart", _UNIT], capture_output=True, text=True, check=False, timeout=_WITHIN_S
            )
        except subprocess.TimeoutExpired:
            self.told.append(
                f"{_UNIT} is still at work after {_WITHIN_S:.0f} s; edge-deploy status says what comes of it"
            )
            return {}  # the next provision waits for it again
        if done.returncode:
            self.told.append(f"{_UNIT} has failed: {done.stderr.strip()[-_MOST:]}; run provision again")
            return {}
        problem = self._problem()
        if problem is not None:
            self.told.append(problem)
        return {"over": self.values["over"]}

    def undo(self, *, is_real: bool, purge: bool, gone: set[str]) -> str:
        """Take nothing back: what lies there is data."""
        return ""

    def _problem(self) -> str | None:
        """Return that the release which serves cannot have its software over what is installed now, and why."""
        try:
            with open_parent(self.values["current"]) as (folder, name):
                release = os.path.basename(os.readlink(name, dir_fd=folder.fd))
            with open_folder(self.path) as folder, open_file_in(folder, "said.json") as fd:
                problem = None if fd is None else json.loads(read(fd)).get(release)
        except FileNotFoundError:
            return None  # nothing serves, or nothing was ever said
        except (Conflict, OSError, ValueError, AttributeError, RecursionError) as error:
            return f"what {_UNIT} says cannot be read: {error}"[:_MOST]
        if problem is None:
            return None
        return (
            f"release {release}, which serves, cannot have its software over what is installed now: "
            f"{str(problem)[:_MOST]}; push one that can before the service starts again"
        )

"""Steps that are about accounts and units."""

from __future__ import annotations

import grp
import pwd
import subprocess

from edge.deploy.provision.remote.contents import holds_files
from edge.deploy.provision.remote.files import Step
from edge.deploy.provision.remote.folders import open_folder
from edge.deploy.provision.remote.tools import Conflict, Record, has_group, has_user, run

__all__ = ["Accounts", "Enabled"]


class Accounts(Step):
    """Users and groups of a sysusers file that a step before this one has written."""

    def check(self) -> list[str]:
        """Create those that are missing."""
        lines = [f"create group {name}" for name in self.values["groups"] if not has_group(name)]
        for name, (home, shell, _) in self.values["users"].items():
            try:
                there = pwd.getpwnam(name)
            except KeyError:
                lines.append(f"create user {name}")
                continue
            if (there.pw_dir, there.pw_shell) != (home, shell):
                raise Conflict(f"user {name} is there with {there.pw_dir} and {there.pw_shell}, not {home} and {shell}")
        for user, group in self.values["members"]:
            if not has_group(group) or user not in grp.getgrnam(group).gr_mem:
                lines.append(f"add user {user} to group {group}")
        return lines

    def apply(self) -> Record:
        """Create them by systemd-sysusers."""
        made = dict(self.record or {"users": [], "groups": []})
        users = [name for name in self.values["users"] if not has_user(name)]
        groups = [name for name in self.values["groups"] if not has_group(name)]
        run(["systemd-sysusers", self.path])
        for name in users:
            if self.values["users"][name][2]:
                # "!" would lock the account for keys, too, where sshd does not use PAM; no password matches "*".
                run(["usermod", "--password", "*", name])
        return {"users": made["users"] + users, "groups": made["groups"] + groups}

    def undo(self, *, is_real: bool, purge: bool, gone: set[str]) -> str:
        """Remove those that were created here, unless data of theirs stays."""
        record = self.record or {"users": [], "groups": []}
        if not purge and any(map(_holds_data, self.values["data"])):
            return f"keep users {', '.join(record['users'])}: their data stays"
        if is_real:
            for name in filter(has_user, record["users"]):
                run(["userdel", name])
            for name in filter(has_group, record["groups"]):
                run(["groupdel", name])
        return f"remove users {', '.join(record['users'])}; groups {', '.join(record['groups'])}"


class Enabled(Step):
    """Units that start at boot."""

    def check(self) -> list[str]:
        """Enable those that are not, and start those that are to run already."""
        enabled = [f"enable {unit}" for unit in self.values["units"] if not _is("enabled", unit)]
        return enabled + [f"start {unit}" for unit in self.values["starts"] if not _is("active", unit)]

    def apply(self) -> Record:
        """Enable them; the service itself is not started."""
        run(["systemctl", "daemon-reload"])
        run(["systemctl", "--quiet", "enable", *self.values["units"]])
        if self.values["starts"]:
            run(["systemctl", "start", *self.values["starts"]])
        return {}

    def undo(self, *, is_real: bool, purge: bool, gone: set[str]) -> str:
        """Stop and disable them."""
        units = self.values["units"] + self.values["stops"]
        if is_real:
            subprocess.run(["systemctl", "stop", *units], capture_output=True, check=False)
            subprocess.run(["systemctl", "--quiet", "disable", *self.values["units"]], capture_output=True, check=False)
            subprocess.run(["systemctl", "reset-failed", *units], capture_output=True, check=False)
        return f"stop and disable {', '.join(units)}"


def _is(state: str, unit: str) -> bool:
    asked = subprocess.run(["systemctl", f"is-{state}", unit], capture_output=True, text=True, check=False)
    return asked.stdout.strip() == state


def _holds_data(path: str) -> bool:
    try:
        with open_folder(path) as folder:
            return holds_files(folder)
    except FileNotFoundError:
        return False
    except Conflict:
        return True  # a link or a file in its place is somebody's, too

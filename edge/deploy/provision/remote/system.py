"""Steps that are about accounts, the software and units."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import shutil
import subprocess
import sys

from edge.deploy.provision.remote.files import Step
from edge.deploy.provision.remote.tools import Conflict, Record, has_group, has_user, is_bare, put, run, sha256, sync

__all__ = ["Accounts", "Enabled", "Software"]


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

    def undo(self, *, is_real: bool, purge: bool) -> str:
        """Remove those that were created here, unless data of theirs stays."""
        record = self.record or {"users": [], "groups": []}
        if not purge and any(os.path.isdir(data) and not is_bare(data) for data in self.values["data"]):
            return f"keep users {', '.join(record['users'])}: their data stays"
        if is_real:
            for name in filter(has_user, record["users"]):
                run(["userdel", name])
            for name in filter(has_group, record["groups"]):
                run(["groupdel", name])
        return f"remove users {', '.join(record['users'])}; groups {', '.join(record['groups'])}"


class Software(Step):
    """A virtual environment of its own per version, and the link that names the one in use."""

    def check(self) -> list[str]:
        """Install it, switch the link to it."""
        link = self.values["link"]
        if os.path.lexists(link) and not os.path.islink(link):
            raise Conflict(f"{link} is there and is no link of provision's")
        lines = []
        if not self._is_complete():
            lines.append(f"install {self.values['title']} in {self.path}")
        if not os.path.islink(link) or os.readlink(link) != os.path.basename(self.path):
            former = os.readlink(link) if os.path.islink(link) else "nothing"
            lines.append(f"switch {link} from {former} to {os.path.basename(self.path)}")
        return lines

    def apply(self) -> Record:
        """Install beside what is in use, then switch by one rename; the version in use before stays, older ones go."""
        link, name = self.values["link"], os.path.basename(self.path)
        former = os.readlink(link) if os.path.islink(link) else None
        if not self._is_complete():
            shutil.rmtree(self.path, ignore_errors=True)
            self._install()
        if former != name:
            partial = f"{link}.partial"
            if os.path.lexists(partial):
                os.unlink(partial)
            os.symlink(name, partial)
            os.replace(partial, link)
            sync(os.path.dirname(link))
        folder = os.path.dirname(self.path)
        for old in set((self.record or {}).get("names", [])) - {former, name}:
            shutil.rmtree(os.path.join(folder, old), ignore_errors=True)
        return {"names": [each for each in dict.fromkeys([former, name]) if each]}

    def undo(self, *, is_real: bool, purge: bool) -> str:
        """Remove the link and every version."""
        names = (self.record or {}).get("names", [])
        link = self.values["link"]
        if is_real:
            if os.path.islink(link) and os.readlink(link) in names:
                os.unlink(link)
            for name in names:
                shutil.rmtree(os.path.join(os.path.dirname(self.path), name), ignore_errors=True)
            if "store" in self.values:
                shutil.rmtree(os.path.dirname(self.values["store"]), ignore_errors=True)
        return f"remove {link} and {', '.join(names)}"

    def _is_complete(self) -> bool:
        return os.path.isfile(os.path.join(self.path, ".complete"))

    def _install(self) -> None:
        store = self._stored()
        run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", self.path])
        locked = os.path.join(self.path, "requirements.txt")
        put(locked, self.values["requirements"].encode(), 0o644, (0, 0), None)
        pip = [os.path.join(self.path, "bin", "python"), os.path.join(store, self.values["pip"], "pip"), "install"]
        pip += ["--no-index", "--no-deps", "--no-cache-dir", "--disable-pip-version-check", "--find-links", store]
        run([*pip, "--require-hashes", "--requirement", locked])
        put(os.path.join(self.path, ".complete"), b"", 0o644, (0, 0), None)
        os.sync()

    def _stored(self) -> str:
        """Take into root's own folder what was sent, each as its SHA-256 says, and nothing else; return the folder."""
        store: str = self.values["store"]
        os.makedirs(store, mode=0o755, exist_ok=True)
        for name in set(os.listdir(store)) - set(self.values["wheels"]):
            os.unlink(os.path.join(store, name))
        for name, digest in self.values["wheels"].items():
            path = os.path.join(store, name)
            if os.path.isfile(path) and sha256(path) == digest:
                continue
            try:
                with open(os.path.join(self.values["folder"] or "", name), "rb") as file:
                    content = file.read()
            except FileNotFoundError:
                content = b""
            if hashlib.sha256(content).hexdigest() != digest:
                raise Conflict(f"{name} has not arrived as it was sent")
            put(path, content, 0o644, (0, 0), None)
        return store


class Enabled(Step):
    """Units that start at boot."""

    def check(self) -> list[str]:
        """Enable those that are not."""
        return [f"enable {unit}" for unit in self.values["units"] if not self._is_enabled(unit)]

    def apply(self) -> Record:
        """Enable them; nothing is started."""
        run(["systemctl", "daemon-reload"])
        run(["systemctl", "--quiet", "enable", *self.values["units"]])
        return {}

    def undo(self, *, is_real: bool, purge: bool) -> str:
        """Stop and disable them."""
        units = self.values["units"] + self.values["stops"]
        if is_real:
            subprocess.run(["systemctl", "stop", *units], capture_output=True, check=False)
            subprocess.run(["systemctl", "--quiet", "disable", *self.values["units"]], capture_output=True, check=False)
            subprocess.run(["systemctl", "reset-failed", *units], capture_output=True, check=False)
        return f"stop and disable {', '.join(units)}"

    def _is_enabled(self, unit: str) -> bool:
        asked = subprocess.run(["systemctl", "is-enabled", unit], capture_output=True, text=True, check=False)
        return asked.stdout.strip() == "enabled"

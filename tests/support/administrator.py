"""A local account that logs in over a real sshd and has the real sudo, by rules that a test writes."""

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from edge.transport.ssh import SshAddress
from tests.support.second_user import shared_folder
from tests.support.sshd import Sshd

_NEEDED = ("sudo", "useradd", "userdel", "chpasswd", "visudo")
needs_accounts = pytest.mark.skipif(
    os.geteuid() != 0 or any(shutil.which(name) is None for name in _NEEDED),
    reason=f"root is needed, to make an account, and {', '.join(_NEEDED)}",
)

NOBODY_ASKED, ASKED = "ALL=(ALL:ALL) NOPASSWD: ALL", "ALL=(ALL:ALL) ALL"


@dataclass(frozen=True)
class Administrator:
    """An account with a password of its own; `address` is how it logs in."""

    name: str
    password: str
    address: SshAddress

    def may(self, *rules: str) -> None:
        """Write what sudoers says of the account; `Defaults` are its own, too."""
        path = Path("/etc/sudoers.d") / self.name
        lines = [rule.replace("Defaults", f"Defaults:{self.name}", 1) for rule in rules if rule.startswith("Defaults")]
        lines += [f"{self.name} {rule}" for rule in rules if not rule.startswith("Defaults")]
        partial = path.with_name(f"{self.name}.partial")  # sudo passes over names with a dot
        partial.write_text("".join(f"{line}\n" for line in lines))
        partial.chmod(0o440)
        subprocess.run(["visudo", "-cqf", str(partial)], check=True)
        partial.rename(path)


@contextlib.contextmanager
def administrator() -> Iterator[Administrator]:
    """Give an account that did not exist before and does not afterwards."""
    name, password = f"edge-test-{secrets.token_hex(4)}", f"pw-{secrets.token_hex(12)}"
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", name], check=True)
    try:
        subprocess.run(["chpasswd"], input=f"{name}:{password}\n", text=True, check=True)
        with shared_folder() as folder, Sshd(folder / "sshd", command=None) as sshd:
            (folder / "sshd/authorized_keys").chmod(0o644)  # sshd reads it as the account
            yield Administrator(name, password, replace(sshd.address(), user=name))
    finally:
        (Path("/etc/sudoers.d") / name).unlink(missing_ok=True)
        subprocess.run(["userdel", "--remove", name], capture_output=True)

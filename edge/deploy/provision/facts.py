"""What provision has to know of a device, asked in one go by plain shell commands."""

from __future__ import annotations

from dataclasses import dataclass

from edge.errors import DeployError

__all__ = ["FACTS_SCRIPT", "WHEEL_STORE", "ProvisionFacts", "facts_from_text"]

WHEEL_STORE = "/var/cache/edge-deploy/wheels"
"""Where a device keeps the wheels of the version in use, root's alone to write, so that they are not sent again."""

_NEEDED = ("python3", "systemctl", "systemd-sysusers", "ssh-keygen", "sudo", "visudo", "useradd")
_TESTED = ("x86_64", "aarch64")

FACTS_SCRIPT = f"""
echo "architecture=$(uname -m)"
echo "python=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)"
echo "glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d' ' -f2)"
echo "systemd=$(systemctl --version 2>/dev/null | sed -n '1s/^systemd \\([0-9]*\\).*/\\1/p')"
for tool in {" ".join(_NEEDED)}; do
  PATH=$PATH:/usr/sbin:/sbin command -v $tool >/dev/null || echo "missing=$tool"
done
test -e /dev/nvmap && echo "gpu=nvmap"
l4t='1s/^# *R\\([0-9]*\\) (release), REVISION: \\([0-9.]*\\).*/l4t=\\1.\\2/p'
test -r /etc/nv_tegra_release && sed -n "$l4t" /etc/nv_tegra_release
test -s /etc/edge-deploy/home/.ssh/authorized_keys && echo "has=key"
test -s /etc/edge-deploy/allowed_signers && echo "has=signer"
ssh-keygen -Q -l -f /etc/edge-deploy/revoked.krl 2>/dev/null | sed -n 's/^\\([a-z][^#]*[^# ]\\).*/revoked=\\1/p'
for file in /etc/edge-deploy/credentials/*; do test -f "$file" && echo "credential=${{file##*/}}"; done
sha256sum {WHEEL_STORE}/*.whl 2>/dev/null | sed -n 's/^\\([0-9a-f]\\{{64\\}}\\) .*/wheel=\\1/p'
echo "free=$(df -Pk /opt 2>/dev/null | sed -n '2s/ \\+/ /gp' | cut -d' ' -f4)"
echo "end=yes"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionFacts:
    """A device as it is before a provision; `free_bytes` is of the file system with /opt, `l4t` None: no Jetson.

    `wheels` are the SHA-256 of those that it keeps, computed there now; `revoked`: what its list revokes.
    """

    architecture: str
    python: tuple[int, int]
    glibc: tuple[int, int]
    systemd: int
    has_nvmap: bool
    l4t: str | None
    has_key: bool
    has_signer: bool
    credentials: tuple[str, ...]
    free_bytes: int
    wheels: frozenset[str] = frozenset()
    revoked: frozenset[str] = frozenset()


def facts_from_text(text: str, *, target: str) -> ProvisionFacts:
    """Return the facts that FACTS_SCRIPT printed.

    Raises:
        DeployError: `preflight.device`, if the device lacks what edge-deploy cannot do without.
    """
    pairs = [line.partition("=")[::2] for line in text.splitlines() if "=" in line]
    values = dict(pairs)
    if values.get("end") != "yes":
        raise _unfit(
            target, f"answered {text[-200:]!r} when asked for its facts", "check that its shell prints nothing"
        )
    missing = [value for name, value in pairs if name == "missing"]
    if missing:
        raise _unfit(target, f"has no {', '.join(missing)}", "install them there with its package manager")
    if values["architecture"] not in _TESTED:
        raise _unfit(target, f"is {values['architecture']}, expected {' or '.join(_TESTED)}", "use another device")
    python, glibc = _version(values["python"]), _version(values["glibc"])
    if python < (3, 10):
        raise _unfit(target, f"has Python {values['python']}, expected 3.10 or newer", "JetPack 6 and 7 have it")
    if int(values["systemd"] or 0) < 247:
        raise _unfit(target, f"has systemd {values['systemd']}, expected 247 or newer", "JetPack 6 and 7 have it")
    return ProvisionFacts(
        architecture=values["architecture"],
        python=python,
        glibc=glibc,
        systemd=int(values["systemd"]),
        has_nvmap=values.get("gpu") == "nvmap",
        l4t=values.get("l4t") or None,
        has_key=("has", "key") in pairs,
        has_signer=("has", "signer") in pairs,
        credentials=tuple(value for name, value in pairs if name == "credential"),
        free_bytes=int(values["free"] or 0) * 1024,
        wheels=frozenset(value for name, value in pairs if name == "wheel"),
        revoked=frozenset(value.strip() for name, value in pairs if name == "revoked"),
    )


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def _unfit(target: str, problem: str, hint: str) -> DeployError:
    return DeployError("preflight.device", f"{target} {problem}", hint=hint)

"""Facts of a device for provision, asked in one go by plain shell commands, and the wheels that the lock has for it.

The lock has the one wheel of each library for each kind of device, by its SHA-256 (docs/adr/0018). `make lock` writes
it; nothing here asks a package index.
"""

from __future__ import annotations

import importlib.resources
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from edge.device.facts import name_of_host
from edge.errors import DeployError
from edge.reading import json_object

__all__ = [
    "ENVIRONMENTS",
    "FACTS_SCRIPT",
    "FORMAT",
    "PYCUDA_SOURCE_SHA256",
    "PYCUDA_VERSION",
    "PYTHONS",
    "WHEEL_STORE",
    "Environment",
    "Lock",
    "LockedWheel",
    "ProvisionFacts",
    "Use",
    "cache",
    "facts_from_text",
    "is_jetson",
    "pycuda_folder",
    "pycuda_wheel",
    "read_lock",
]

FORMAT = "edge.lock/1"
Use = Literal["serve", "jetson", "install"]


@dataclass(frozen=True, slots=True, order=True)
class Environment:
    """Facts that decide which wheels a device can use; all have a glibc of 2.35 or newer."""

    architecture: str
    python: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.architecture}-cp{self.python[0]}{self.python[1]}"

    @property
    def title(self) -> str:
        return f"Python {self.python[0]}.{self.python[1]} on {self.architecture}"


# JetPack 6 and Ubuntu 22.04, Debian 12, JetPack 7 and Ubuntu 24.04, Debian 13, Ubuntu 26.04.
ENVIRONMENTS = tuple(
    Environment(architecture, (3, minor)) for architecture in ("aarch64", "x86_64") for minor in (10, 11, 12, 13, 14)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedWheel:
    """One wheel of one library; `use`: `serve` (all devices), `jetson` (with pycuda) or `install` (pip, not installed).

    `requires`: on this kind of device, without markers. `supplier`, `license`: as stated, None: they are not.
    """

    name: str
    version: str
    wheel: str
    sha256: str
    use: Use
    requires: tuple[str, ...] = ()
    supplier: str | None = None
    license: str | None = None

    def __post_init__(self) -> None:
        if self.use not in get_args(Use) or len(self.sha256) != 64 or "/" in self.wheel:
            raise ValueError(f"{self} is no locked wheel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """The wheels of each environment, sorted by name; `made_at`: when they were last chosen, UTC as in RFC 3339."""

    made_at: str
    environments: Mapping[Environment, Sequence[LockedWheel]]

    def wheels_for(self, environment: Environment, *, is_jetson: bool) -> tuple[LockedWheel, ...]:
        """DeployError `request.wheels`, if the lock does not know such devices."""
        if environment not in self.environments:
            raise DeployError(
                "request.wheels",
                f"no wheels are locked for {environment.title}, only for {', '.join(map(str, self.environments))}",
                hint="a newer edge-deploy may know them; a checkout can be taught by `make lock`",
            )
        return tuple(one for one in self.environments[environment] if is_jetson or one.use != "jetson")


def read_lock(content: bytes | None = None) -> Lock:
    """Return the lock in `content`, or the one that this edge-deploy brings; DeployError `request.wheels`."""
    if content is None:
        content = (importlib.resources.files("edge.deploy.provision") / "lock.json").read_bytes()
    try:
        values = json_object(content)
        if values["format"] != FORMAT:
            raise ValueError(f"expected {FORMAT}, got {values['format']!r}")
        named = {str(environment): environment for environment in ENVIRONMENTS}
        environments = {
            named[name]: tuple(_locked(one) for one in wheels) for name, wheels in values["environments"].items()
        }
        return Lock(made_at=str(values["made_at"]), environments=environments)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DeployError("request.wheels", f"the lock of wheels cannot be used: {error}") from None


def _locked(values: Mapping[str, Any]) -> LockedWheel:
    return LockedWheel(**{**values, "requires": tuple(values.get("requires", ()))})


WHEEL_STORE = "/var/cache/edge-deploy/wheels"
"""Where a device keeps the wheels of the version in use, root's alone to write, so that they are not sent again."""

_NEEDED = ("python3", "systemctl", "systemd-sysusers", "ssh-keygen", "sudo", "visudo", "useradd")
_TESTED = ("x86_64", "aarch64")

FACTS_SCRIPT = f"""
echo "architecture=$(uname -m)"
echo "python=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)"
echo "name=$(uname -n)"
sed -n 's/^name *= *"\\([a-z0-9-]*\\)".*/name=\\1/p' /etc/edge-deploy/device.toml 2>/dev/null
echo "glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d' ' -f2)"
echo "systemd=$(systemctl --version 2>/dev/null | sed -n '1s/^systemd \\([0-9]*\\).*/\\1/p')"
for tool in {" ".join(_NEEDED)}; do
  PATH=$PATH:/usr/sbin:/sbin command -v $tool >/dev/null || echo "missing=$tool"
done
for node in nvmap dri/renderD128; do test -e /dev/$node && echo "node=$node"; done
systemctl cat nvargus-daemon.service >/dev/null 2>&1 && echo "has=argus"
l4t='1s/^# *R\\([0-9]*\\) (release), REVISION: \\([0-9.]*\\).*/l4t=\\1.\\2/p'
test -r /etc/nv_tegra_release && sed -n "$l4t" /etc/nv_tegra_release
python3 -c 'import gi; gi.require_version("Gst", "1.0"); from gi.repository import Gst' 2>/dev/null && echo "has=video"
sed -n 's/^/settings=/p' /etc/edge-deploy/device.toml 2>/dev/null
sed -n 's/^/pull=/p' /etc/edge-deploy/pull.toml 2>/dev/null
test -s /etc/edge-deploy/home/.ssh/authorized_keys && echo "has=key"
test -s /etc/edge-deploy/allowed_signers -o -s /etc/edge-deploy/trust.json && echo "has=signer"
ssh-keygen -Q -l -f /etc/edge-deploy/revoked.krl 2>/dev/null | sed -n 's/^\\([a-z][^#]*[^# ]\\).*/revoked=\\1/p'
for file in /etc/edge-deploy/credentials/*; do test -f "$file" && echo "credential=${{file##*/}}"; done
made='s/.*"made_by": *"edge-deploy \\([0-9.]*\\)".*/made=\\1/p'
sed -n "$made" /var/lib/edge-deploy/current/manifest.json 2>/dev/null
sha256sum {WHEEL_STORE}/*.whl 2>/dev/null | sed -n 's/^\\([0-9a-f]\\{{64\\}}\\) .*/wheel=\\1/p'
echo "free=$(df -Pk /opt 2>/dev/null | sed -n '2s/ \\+/ /gp' | cut -d' ' -f4)"
echo "end=yes"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionFacts:
    """A device as it is before a provision; `free_bytes` is of the file system with /opt, `l4t` None: no Jetson.

    `has_video`: the system's Python has GStreamer. `wheels` are the SHA-256 of those that it keeps, computed there now;
    `revoked`: what its list revokes. `gpu_nodes`: those below /dev that a Jetson's GPU is not ready without;
    `has_argus`: NVIDIA's daemon of cameras. `made_with` is the version of the edge-deploy that has made the release
    which serves; None: there is none. `name` is that of its device.toml, or else after its host name. `settings` and
    `pull` are the texts of its device.toml and pull.toml, empty where there is none.
    """

    architecture: str
    python: tuple[int, int]
    glibc: tuple[int, int]
    gpu_nodes: tuple[str, ...]
    has_argus: bool
    l4t: str | None
    has_key: bool
    has_signer: bool
    has_video: bool
    credentials: tuple[str, ...]
    free_bytes: int
    wheels: frozenset[str] = frozenset()
    revoked: frozenset[str] = frozenset()
    made_with: str | None = None
    name: str = "device"
    settings: str = ""
    pull: str = ""

    @property
    def environment(self) -> Environment:
        return Environment(self.architecture, self.python)


def facts_from_text(text: str, *, target: str) -> ProvisionFacts:
    """Return the facts that FACTS_SCRIPT printed; DeployError `preflight.device` if a necessary part is missing."""
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
        gpu_nodes=tuple(value for name, value in pairs if name == "node"),
        has_argus=("has", "argus") in pairs,
        l4t=values.get("l4t") or None,
        has_key=("has", "key") in pairs,
        has_signer=("has", "signer") in pairs,
        has_video=("has", "video") in pairs,
        credentials=tuple(value for name, value in pairs if name == "credential"),
        free_bytes=int(values["free"] or 0) * 1024,
        wheels=frozenset(value for name, value in pairs if name == "wheel"),
        revoked=frozenset(value.strip() for name, value in pairs if name == "revoked"),
        made_with=values.get("made") or None,
        name=name_of_host(values.get("name", "")),
        settings="\n".join(value for name, value in pairs if name == "settings"),
        pull="\n".join(value for name, value in pairs if name == "pull"),
    )


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def _unfit(target: str, problem: str, hint: str) -> DeployError:
    return DeployError("preflight.device", f"{target} {problem}", hint=hint)


PYTHONS = {(3, 10): "JetPack 6", (3, 12): "JetPack 7"}
"""Pythons that JetPack's TensorRT has bindings for; with another there is no GPU engine to serve by."""

PYCUDA_VERSION = "2026.1"
PYCUDA_SOURCE_SHA256 = "759516160628ba06f32ce7e563e3f5b9214691dc9528a03ea99ea1073f4e14ba"
"""Of the source that `make pycuda-wheels` compiles."""


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edge-deploy"


def pycuda_folder() -> Path:
    return cache() / "pycuda"


def is_jetson(facts: ProvisionFacts) -> bool:
    return facts.l4t is not None and facts.python in PYTHONS


def pycuda_wheel(facts: ProvisionFacts) -> Path | None:
    """Return the newest wheel of pycuda for a device, from where `make pycuda-wheels` puts it.

    None: it is no Jetson, or there is none for its Python.
    No lock names it, because it is made on this side (docs/adr/0008): its SHA-256 is that of the file found.
    """
    if not is_jetson(facts):
        return None
    python = f"cp{facts.python[0]}{facts.python[1]}"
    found = sorted(pycuda_folder().glob(f"pycuda-*-{python}-{python}-linux_{facts.architecture}.whl"))
    return found[-1] if found else None

"""The one list of steps that makes a device of a machine; plan, apply and undo all read it."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any, TypeVar

from edge.bundle.sign import DOWNGRADE, RELEASE
from edge.bundle.statement import RING
from edge.deploy.provision.facts import WHEEL_STORE, ProvisionFacts
from edge.deploy.provision.keys import PublicKey, Revocations
from edge.deploy.provision.wheels import WheelSet
from edge.device.facts import DeviceSettings, decode_settings
from edge.errors import DeployError
from edge.registry.reference import PullSettings, decode_pull_settings, encode_pull_settings
from edge.version import __version__

__all__ = ["DEVICE_TOML", "KEYS", "PRIVATE_NETWORKS", "REGISTRY_LOGIN", "SIGNERS", "Wanted", "steps"]

Step = dict[str, Any]
T = TypeVar("T")

PRIVATE_NETWORKS = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fc00::/7", "fe80::/10")
"""Where cameras and brokers are unless somebody says otherwise: private and link-local addresses."""

DEVICE_TOML = "/etc/edge-deploy/device.toml"
KEYS, SIGNERS = "/etc/edge-deploy/home/.ssh/authorized_keys", "/etc/edge-deploy/allowed_signers"
"""Keys that may push, and keys whose releases count."""


_SERVICES = ("edge-runtime", "edge-build", "edge-trial", "edge-recover", "edge-rollback", "edge-pull", "edge-software")
_TO_PULL = ("edge-agent.socket", "edge-pull.timer")
"""Neither does anything where there is no pull.toml."""
_UNITS = (*(f"{name}.service" for name in _SERVICES), "edge-agent@.service", *_TO_PULL)
_TO_SERVE = ("edge-recover.service", "edge-runtime.service", "edge-trial.service")
_AT_BOOT = (*_TO_SERVE, "edge-software.service", *_TO_PULL)
_COMMAND = '#!/bin/sh\nexec /opt/edge/bin/edge-runtime "$@"\n'
_CURRENT = "/var/lib/edge-deploy/current"
_DATA = tuple(f"/var/lib/edge-{name}" for name in ("deploy", "runtime", "build", "pull", "software"))
# The service reads what is pushed, no other user: what edge-deploy creates there later is of the same group (setgid).
# Not by a group that is new to edge-runtime: a service that runs while a device is provisioned again would not have it.
_READ = 0o2750
REGISTRY_LOGIN = "registry-login"  # who fetches has a secret of its own, and none of the cameras'
_DROP_INS = "/etc/systemd/system/edge-runtime.service.d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A person's wishes for a device; what is None or empty stays as it is there, or is as usual where it is not there.

    `usual_name` None: after its host name. `pull`: what is stated of its pull.toml; None: of it, nothing changes.
    `is_exact`: all other keys and signers go, with `may_lock_out` also those that this machine uses.
    `registry_ca`: certificates of the pulled registry's own CA, PEM. ValueError for what a device would not read.
    """

    name: str | None
    usual_name: str | None = None
    compatible: tuple[str, ...]
    usual_class: str = "any"
    channels: tuple[str, ...] = ()
    networks: tuple[str, ...] | None
    keys: Sequence[PublicKey]
    signers: Sequence[tuple[PublicKey, bool]]  # with: may it sign downgrades
    promoters: Sequence[PublicKey] = ()  # may state what rings run
    revoked: Revocations | None = None
    is_exact: bool = False
    may_lock_out: bool = False
    pull: Mapping[str, str] | None = None
    trust: tuple[str, str] | None = None  # a root's public key, and its word on who counts
    registry_ca: str | None = None

    def __post_init__(self) -> None:
        DeviceSettings(
            name="device" if self.name is None else self.name,
            compatible=self.compatible or (self.usual_class,),
            channels=self.channels,
        )
        for network in self.networks or ():
            try:
                ip_network(network, strict=False)
            except ValueError as error:
                raise ValueError(f"networks: {error}") from None


def steps(wanted: Wanted, facts: ProvisionFacts, wheels: WheelSet) -> list[Step]:
    """In the order in which they are applied."""
    return [
        *_accounts(),
        *_folders(),
        *_settings(wanted, facts),
        *_trust(wanted),
        _file("/etc/sudoers.d/edge-deploy", _shipped("sudoers"), mode=0o440, test=["visudo", "-cqf"]),
        *_units(wanted, facts),
        _software(wheels, facts),
        {**_file("/usr/local/bin/edge-runtime", _COMMAND, mode=0o755), "is_spare": True},
        {
            "kind": "Enabled",
            "path": "units",
            "units": list(_AT_BOOT),
            "stops": [f"{name}.service" for name in _SERVICES],
        },
        {
            "kind": "Brought",
            "path": "/var/lib/edge-software",
            "over": f"/opt/{wheels.name}",
            "current": _CURRENT,
        },
        {
            "kind": "Started",
            "path": f"{_CURRENT}/manifest.json",
            "serving": list(_TO_SERVE),
            "units": list(_TO_PULL) if wanted.pull else [],
        },
    ]


def _accounts() -> Iterator[Step]:
    yield _folder("/etc/edge-deploy")
    yield _folder("/etc/sysusers.d", mode=None)
    yield _file("/etc/sysusers.d/edge-deploy.conf", _shipped("sysusers.conf"))
    # The home of edge-deploy is root's, so that an intruder in the agent cannot write its authorized_keys.
    users = {
        "edge-deploy": ["/etc/edge-deploy/home", "/bin/sh", True],
        "edge-runtime": ["/var/lib/edge-runtime", "/usr/sbin/nologin", False],
        **{f"edge-{name}": ["/nonexistent", "/usr/sbin/nologin", False] for name in ("build", "pull", "software")},
    }
    yield {
        "kind": "Accounts",
        "path": "/etc/sysusers.d/edge-deploy.conf",
        "users": users,
        "groups": ["video", "render", *users, "systemd-journal"],
        "members": [
            ["edge-build", "edge-runtime"],
            ["edge-software", "edge-runtime"],
            ["edge-deploy", "edge-build"],
            ["edge-deploy", "edge-runtime"],
            ["edge-deploy", "systemd-journal"],
        ],
        "data": list(_DATA),
    }


def _folders() -> Iterator[Step]:
    yield _folder("/etc/edge-deploy/credentials", mode=0o700, is_data=True)
    yield _folder("/etc/edge-deploy/home")
    yield _folder("/etc/edge-deploy/home/.ssh")
    for name in ("", "/store", "/store/sha256", "/releases", "/engines"):
        yield _folder(
            f"/var/lib/edge-deploy{name}", owner="edge-deploy", group="edge-runtime", mode=_READ, is_data=True
        )
    # What is whole goes from there to the store, and keeps its group.
    incoming = "/var/lib/edge-deploy/incoming"
    yield _folder(incoming, owner="edge-deploy", group="edge-runtime", mode=0o2700, is_data=True)
    yield _folder("/var/lib/edge-runtime", owner="edge-runtime", mode=0o700, is_data=True)
    yield _folder("/var/lib/edge-build", owner="edge-build", mode=0o750, is_data=True)
    yield _folder("/var/lib/edge-pull", owner="edge-pull", is_data=True)
    yield _folder("/var/lib/edge-software", owner="edge-software", is_data=True)
    yield _folder("/etc/tmpfiles.d", mode=None)
    yield _file("/etc/tmpfiles.d/edge-deploy.conf", _shipped("tmpfiles.conf"))
    yield _folder("/run/edge-deploy", owner="edge-deploy", mode=0o700, is_volatile=True)


def _settings(wanted: Wanted, facts: ProvisionFacts) -> Iterator[Step]:
    usual = DeviceSettings(name=wanted.usual_name or facts.name, compatible=(wanted.usual_class,), channels=("stable",))
    there = _readable(decode_settings, facts.settings) or usual
    channels = wanted.channels or there.channels
    values = {
        "name": wanted.name or there.name,
        "compatible": list(wanted.compatible or there.compatible),
        "channels": list(channels),
    }
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    yield _file(DEVICE_TOML, text, is_seed=not (wanted.name or wanted.compatible or wanted.channels))
    if wanted.pull is not None:
        before = _readable(decode_pull_settings, facts.pull)
        channel = {"channel": channels[0]} if len(channels) == 1 else {}
        pull = PullSettings(**{**channel, **wanted.pull}) if before is None else replace(before, **wanted.pull)
        yield _file("/etc/edge-deploy/pull.toml", encode_pull_settings(pull))
    if wanted.trust is not None:
        yield _file("/etc/edge-deploy/trust_root", wanted.trust[0] + "\n")
        yield _file("/etc/edge-deploy/trust.json", wanted.trust[1])
    if wanted.registry_ca is not None:
        yield _file("/etc/edge-deploy/registry-ca.pem", wanted.registry_ca)


def _readable(decode: Callable[..., T], text: str) -> T | None:
    """Return the settings that a device has; None where it has none that it could read itself."""
    try:
        return decode(text, origin="there")
    except DeployError:
        return None


def _trust(wanted: Wanted) -> Iterator[Step]:
    signers = [[key.signer_line(*namespaces), key.base64] for key, namespaces in _signing(wanted)]
    keys = [[key.authorized_line(), key.base64] for key in wanted.keys]
    exact = {"is_exact": wanted.is_exact}
    if signers:
        # What a signer who goes has signed may go on serving (docs/adr/0016).
        former = {"moves_to": "/etc/edge-deploy/former_signers"} if wanted.is_exact else {}
        yield {**_lines(SIGNERS, signers, on_other="widen"), **exact, **former}
    if keys:
        yield {**_lines(KEYS, keys, on_other="refuse"), **exact}
    if wanted.revoked is not None:
        yield _file("/etc/edge-deploy/revoked.krl", wanted.revoked.content.decode(errors="surrogateescape"))


def _signing(wanted: Wanted) -> Iterator[tuple[PublicKey, tuple[str, ...]]]:
    """Yield whose signatures count, and in which namespaces; a device that pulls has one who states what it runs."""
    promoters = list(wanted.promoters) or [key for key, _ in wanted.signers if wanted.pull is not None]
    downgraders = {key.base64 for key, may_downgrade in wanted.signers if may_downgrade}
    releasers, promoting = {key.base64 for key, _ in wanted.signers}, {key.base64 for key in promoters}
    for key in {one.base64: one for one in (*promoters, *(key for key, _ in wanted.signers))}.values():
        of = ((RELEASE, releasers), (DOWNGRADE, downgraders), (RING, promoting))
        yield key, tuple(namespace for namespace, keys in of if key.base64 in keys)


def _units(wanted: Wanted, facts: ProvisionFacts) -> Iterator[Step]:
    for unit in _UNITS:
        yield _file(f"/etc/systemd/system/{unit}", _shipped(unit))
    yield _folder(_DROP_INS)
    networks = PRIVATE_NETWORKS if wanted.networks is None else wanted.networks
    allowed = "".join(f"IPAddressAllow={network}\n" for network in networks)
    head = "# Networks of the cameras and the broker; yours to change: provision leaves it as it is.\n[Service]\n"
    yield _file(f"{_DROP_INS}/20-networks.conf", head + allowed, is_seed=wanted.networks is None)
    secrets = [name for name in facts.credentials if name != REGISTRY_LOGIN]
    if secrets:
        yield _file(f"{_DROP_INS}/30-credentials.conf", _credentials(secrets))
    if REGISTRY_LOGIN in facts.credentials:
        yield _folder("/etc/systemd/system/edge-pull.service.d")
        yield _file("/etc/systemd/system/edge-pull.service.d/30-credentials.conf", _credentials([REGISTRY_LOGIN]))
    if "nvmap" in facts.gpu_nodes:
        devices = " ".join(f"dev-{node.replace('/', '-')}.device" for node in facts.gpu_nodes)
        waits = f"# There at provision: for a node that never comes each start would wait.\n[Unit]\nWants={devices}\n"
        yield _file(f"{_DROP_INS}/10-jetson.conf", waits)
        yield _folder("/etc/systemd/system/edge-build.service.d")
        yield _file("/etc/systemd/system/edge-build.service.d/10-jetson.conf", waits)
    if facts.has_argus:
        yield _file(f"{_DROP_INS}/15-csi.conf", _shipped("csi.conf"))
    rule = _file("/etc/udev/rules.d/70-edge-deploy.rules", _shipped("udev.rules"))
    for step in (_folder("/etc/udev", mode=None), _folder("/etc/udev/rules.d", mode=None), rule):
        yield {**step, "reader": "udevadm"}


def _credentials(names: Sequence[str]) -> str:
    # A credential whose file is gone later is then no user:password, which the runtime reports; without a default the
    # unit would not start and say only "243/CREDENTIALS".
    text = "# For each file in /etc/edge-deploy/credentials; run provision again after adding one.\n[Service]\n"
    for name in names:
        text += f"LoadCredential={name}:/etc/edge-deploy/credentials/{name}\nSetCredential={name}:gone\n"
    return text


def _software(wheels: WheelSet, facts: ProvisionFacts) -> Step:
    libraries = len(wheels.digests) - 2
    sizes = f"{wheels.length_bytes / 1e6:.1f} MB, {wheels.missing_bytes(facts.wheels) / 1e6:.1f} MB of them to send"
    return {
        "kind": "Software",
        "path": f"/opt/{wheels.name}",
        "link": "/opt/edge",
        "title": f"edge-deploy {__version__} with {libraries} libraries ({sizes})",
        "requirements": wheels.requirements,
        "pip": wheels.pip,
        "wheels": dict(wheels.digests),
        "store": WHEEL_STORE,
    }


def _folder(
    path: str,
    *,
    mode: int | None = 0o755,
    owner: str = "root",
    group: str | None = None,
    is_data: bool = False,
    is_volatile: bool = False,
) -> Step:
    values = {"mode": mode, "owner": owner, "group": group or owner, "is_data": is_data, "is_volatile": is_volatile}
    return {"kind": "Directory", "path": path, **values}


def _file(
    path: str, content: str, *, mode: int = 0o644, test: Sequence[str] | None = None, is_seed: bool = False
) -> Step:
    values = {"content": content, "mode": mode, "owner": "root", "group": "root", "test": test, "is_seed": is_seed}
    return {"kind": "File", "path": path, **values}


def _lines(path: str, entries: Sequence[Sequence[str]], *, on_other: str) -> Step:
    values = {"entries": entries, "mode": 0o644, "owner": "root", "group": "root", "on_other": on_other}
    return {"kind": "Lines", "path": path, **values}


def _shipped(name: str) -> str:
    try:
        return (importlib.resources.files("edge.systemd") / name).read_text("utf-8")
    except ModuleNotFoundError:  # a checkout: there the folder lies beside the package
        return (Path(__file__).parents[3] / "systemd" / name).read_text("utf-8")

"""Where everything lies on a device, and how root becomes the user who owns it before it touches any of it."""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Layout", "become_owner_of"]


class _At:
    """A path below the root of a layout."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, layout: Layout, _: object = None) -> Path:
        return layout.root / self._path


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of a device whose root is `root`: `/` on a device, another folder in tests."""

    root: Path = Path("/")

    # What a person sets: device.toml, allowed_signers, former_signers, revoked.krl, credentials/.
    etc = _At("etc/edge-deploy")
    device_toml = _At("etc/edge-deploy/device.toml")  # name, compatible, reserves and deadlines of this device
    # From where it fetches its releases by itself; without it, it does not.
    pull_toml = _At("etc/edge-deploy/pull.toml")
    allowed_signers = _At("etc/edge-deploy/allowed_signers")  # whose signatures count (ssh-keygen, ALLOWED SIGNERS)
    # The root key, which names the trusted signers; without it, the lists beside it do.
    trust_root = _At("etc/edge-deploy/trust_root")
    first_trust = _At("etc/edge-deploy/trust.json")  # the word of that key when the device was provisioned last
    trust = _At("var/lib/edge-deploy/trust.json")  # A later word of it, that came from a registry
    # Whose signatures counted once: what they signed may go on serving, and nothing of theirs is taken.
    former_signers = _At("etc/edge-deploy/former_signers")
    revoked_keys = _At("etc/edge-deploy/revoked.krl")  # keys that no longer count (a KRL)
    var = _At("var/lib/edge-deploy")  # all that a push writes, on one file system
    store = _At("var/lib/edge-deploy/store/sha256")  # blobs, each named by its SHA-256
    incoming = _At("var/lib/edge-deploy/incoming")  # partial blobs: the only folder that ever holds partial data
    # One folder per release: manifest, signature, links into the store, `engine`.
    releases = _At("var/lib/edge-deploy/releases")
    engines = _At("var/lib/edge-deploy/engines")  # one folder per engine key, built on this device
    current = _At("var/lib/edge-deploy/current")  # the one switch: a relative link to the release that serves
    state = _At("var/lib/edge-deploy/state.json")  # phase of the switch, see `edge.device.state`
    # Highest sequence per channel and newest `created_at` ever accepted.
    counters = _At("var/lib/edge-deploy/counters.json")
    bad = _At("var/lib/edge-deploy/bad.json")  # releases that failed here, with the reason
    audit = _At("var/lib/edge-deploy/audit.jsonl")  # the audit log: one JSON object per line
    build_request = _At("var/lib/edge-deploy/build-request.json")  # what `edge-build.service` is to build
    build_result = _At("var/lib/edge-deploy/build-result.json")  # what came of it
    # The builder's own folder: what it makes and answers, until edge-deploy has taken it over.
    workshop = _At("var/lib/edge-build")
    # What makes the next build faster, such as timings of kernels; may be removed at any time.
    build_cache = _At("var/lib/edge-build/cache")
    # What releases bring to run with, unpacked: edge-software's own, see `edge.device.software`.
    software = _At("var/lib/edge-software")
    # What the last look at the registry came to, as edge-pull wrote it.
    pull_record = _At("var/lib/edge-pull/pull.json")
    run = _At("run/edge-deploy")  # locks, and how far a trial is; gone after a reboot
    build_progress = _At("run/edge-build/progress.json")  # how far the build is that is under way
    trial_progress = _At("run/edge-deploy/trial.json")  # what the trial waits for
    push_lock = _At("run/edge-deploy/lock")  # held by one push for its whole length
    fetch_lock = _At("run/edge-deploy/fetch.lock")  # held by one pull while it fetches, beside a push
    # Held for the moments in which `state.json` and `current` are changed.
    state_lock = _At("run/edge-deploy/state.lock")
    health = _At("run/edge-runtime/health.json")  # what the serving runtime says of itself, see `edge.device.health`
    http_socket = _At("run/edge-runtime/http.sock")  # where the serving runtime shows its status page, to its own group

    def blob(self, sha256: str) -> Path:
        return self.store / sha256[:2] / sha256

    def partial(self, sha256: str, *, is_fetched: bool = False) -> Path:
        """Return where the blob with this digest grows: as a push brings it, or as it is fetched meanwhile."""
        return self.incoming / f"{sha256}.{'fetched' if is_fetched else 'part'}"

    def release(self, name: str) -> Path:
        return self.releases / name

    def engine(self, key: str) -> Path:
        return self.engines / key


def become_owner_of(folder: Path) -> None:
    """Give up root, for good, for the owner of a folder, who could not write afterwards what root left there.

    Does nothing for others than root, nor where there is no such folder yet or it is root's own.
    OSError if root may not become another user here; nothing was touched then.
    """
    if os.geteuid() != 0:
        return
    try:
        status = os.stat(folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if status.st_uid == 0 or not stat.S_ISDIR(status.st_mode):
        return
    try:
        user = pwd.getpwuid(status.st_uid)
        os.initgroups(user.pw_name, user.pw_gid)
        gid = user.pw_gid
    except KeyError:
        os.setgroups([])
        gid = status.st_gid
    os.setresgid(gid, gid, gid)
    os.setresuid(status.st_uid, status.st_uid, status.st_uid)

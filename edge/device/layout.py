"""Where everything lies on a device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Layout"]


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of a device whose root is `root`: `/` on a device, another folder in tests."""

    root: Path = Path("/")

    @property
    def etc(self) -> Path:
        """What a person sets: device.toml, allowed_signers, former_signers, revoked.krl, credentials/."""
        return self.root / "etc/edge-deploy"

    @property
    def device_toml(self) -> Path:
        """Name, compatible, reserves and deadlines of this device."""
        return self.etc / "device.toml"

    @property
    def pull_toml(self) -> Path:
        """From where it fetches its releases by itself; without it, it does not."""
        return self.etc / "pull.toml"

    @property
    def allowed_signers(self) -> Path:
        """Whose signatures count (ssh-keygen, ALLOWED SIGNERS)."""
        return self.etc / "allowed_signers"

    @property
    def former_signers(self) -> Path:
        """Whose signatures counted once: what they signed may go on serving, and nothing of theirs is taken."""
        return self.etc / "former_signers"

    @property
    def revoked_keys(self) -> Path:
        """Keys that no longer count (a KRL)."""
        return self.etc / "revoked.krl"

    @property
    def var(self) -> Path:
        """All that a push writes, on one file system."""
        return self.root / "var/lib/edge-deploy"

    @property
    def store(self) -> Path:
        """Blobs, each named by its SHA-256."""
        return self.var / "store/sha256"

    @property
    def incoming(self) -> Path:
        """Partial blobs: the only folder that ever holds partial data."""
        return self.var / "incoming"

    @property
    def releases(self) -> Path:
        """One folder per release: manifest, signature, links into the store, `engine`."""
        return self.var / "releases"

    @property
    def engines(self) -> Path:
        """One folder per engine key, built on this device."""
        return self.var / "engines"

    @property
    def current(self) -> Path:
        """The one switch: a relative link to the release that serves."""
        return self.var / "current"

    @property
    def state(self) -> Path:
        """Phase of the switch, see `edge.device.state`."""
        return self.var / "state.json"

    @property
    def counters(self) -> Path:
        """Highest sequence per channel and newest `created_at` ever accepted."""
        return self.var / "counters.json"

    @property
    def bad(self) -> Path:
        """Releases that failed here, with the reason."""
        return self.var / "bad.json"

    @property
    def audit(self) -> Path:
        """Who did what, from where, with what result: one JSON object per line."""
        return self.var / "audit.jsonl"

    @property
    def build_request(self) -> Path:
        """What `edge-build.service` is to build."""
        return self.var / "build-request.json"

    @property
    def build_result(self) -> Path:
        """What came of it."""
        return self.var / "build-result.json"

    @property
    def workshop(self) -> Path:
        """The builder's own folder: what it makes and answers, until edge-deploy has taken it over."""
        return self.root / "var/lib/edge-build"

    @property
    def build_cache(self) -> Path:
        """What makes the next build faster, such as timings of kernels; may be removed at any time."""
        return self.workshop / "cache"

    @property
    def software(self) -> Path:
        """What releases bring to run with, unpacked: edge-software's own, see `edge.device.software`."""
        return self.root / "var/lib/edge-software"

    @property
    def pull_record(self) -> Path:
        """What the last look at the registry came to, as edge-pull wrote it."""
        return self.root / "var/lib/edge-pull/pull.json"

    @property
    def run(self) -> Path:
        """Locks; gone after a reboot."""
        return self.root / "run/edge-deploy"

    @property
    def build_progress(self) -> Path:
        """How far the build is that is under way."""
        return self.root / "run/edge-build/progress.json"

    @property
    def agent_turn(self) -> Path:
        """Whose turn it is to answer, see `edge.runtime.software.turns`."""
        return self.run / "agent-turn"

    @property
    def pull_turn(self) -> Path:
        """Whose turn it is to look at the registry; edge-pull's own, gone after a reboot."""
        return self.root / "run/edge-pull/turn"

    @property
    def pull_by(self) -> Path:
        """The software that is looking at the registry, if it is not what provision installed."""
        return self.root / "run/edge-pull/by"

    @property
    def push_lock(self) -> Path:
        """Held by one push for its whole length."""
        return self.run / "lock"

    @property
    def state_lock(self) -> Path:
        """Held for the moments in which `state.json` and `current` are changed."""
        return self.run / "state.lock"

    @property
    def health(self) -> Path:
        """What the serving runtime says of itself, see `edge.device.health`."""
        return self.root / "run/edge-runtime/health.json"

    @property
    def http_socket(self) -> Path:
        """Where the serving runtime shows its status page, to its own group."""
        return self.root / "run/edge-runtime/http.sock"

    def blob(self, sha256: str) -> Path:
        """Return where the blob with this digest lies."""
        return self.store / sha256[:2] / sha256

    def partial(self, sha256: str) -> Path:
        """Return where the blob with this digest grows."""
        return self.incoming / f"{sha256}.part"

    def release(self, name: str) -> Path:
        """Return the folder of a release."""
        return self.releases / name

    def engine(self, key: str) -> Path:
        """Return the folder of an engine."""
        return self.engines / key

"""The root file system that every virtual device starts from: made once by debootstrap, then shared by overlays."""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "dbus-x11",  # debootstrap does not find who provides the session bus that dconf-service asks for
    "udev",
    "openssh-server",
    "sudo",
    "ca-certificates",
    "iproute2",
    "procps",
    "python3",
    "python3-gi",
    "python3-gst-1.0",
    "gir1.2-gstreamer-1.0",
    "gir1.2-gst-plugins-base-1.0",
    "gstreamer1.0-tools",
    "gstreamer1.0-plugins-base",
    "gstreamer1.0-plugins-good",
    "gstreamer1.0-plugins-bad",
    "gstreamer1.0-libav",
)
_KERNEL = ("linux-image-cloud-{}", "initramfs-tools")  # for a machine of its own
_MORE = {"noble": ("libpgm-5.3-0t64",), "trixie": ("libre2-11",)}  # nor who provides what libraries ask for there
_UBUNTU = ("jammy", "noble")  # what JetPack 6 and 7 are made of; the plugins of GStreamer are in `universe`
_UBUNTU_MIRRORS = {"amd64": "http://archive.ubuntu.com/ubuntu", "arm64": "http://ports.ubuntu.com/ubuntu-ports"}
_RECIPE = 1  # raised when `_finish` changes
ADMIN = "admin"


def cache() -> Path:
    """Where images and devices lie; `$EDGE_LAB_CACHE` or a folder of this user. No tmpfs: overlays need xattrs."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("EDGE_LAB_CACHE") or home / "edge-deploy" / "lab")


def native_architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def debian_architecture() -> str:
    """Debian's name of the architecture asked for: `$EDGE_LAB_ARCH`, or this machine's."""
    return os.environ.get("EDGE_LAB_ARCH", native_architecture())


def is_foreign() -> bool:
    return debian_architecture() != native_architecture()


def is_machine() -> bool:
    """Return whether devices are to have kernels of their own: foreign ones, or where `$EDGE_LAB_MACHINE` is 1."""
    return is_foreign() or os.environ.get("EDGE_LAB_MACHINE") == "1"


def slowness() -> int:
    """Return by how much longer things may take: an emulated device takes minutes for what takes seconds."""
    return 20 if is_machine() else 1


def image_path() -> Path:
    """Return where the image lies, or would lie: its name tells how it is made."""
    words = f"{_RECIPE} {suite()} {debian_architecture()} {_packages()}"
    digest = hashlib.sha256(words.encode()).hexdigest()[:12]
    return cache() / f"base-{suite()}-{debian_architecture()}-{digest}"


def base_image() -> Path:
    """Return the image, which is made if there is none yet (four minutes on two cores)."""
    image = image_path()
    cache().mkdir(parents=True, exist_ok=True)
    with _exclusive(image.with_suffix(".lock")):
        if not image.is_dir():
            partial = image.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            started = time.monotonic()
            debootstrap(partial, debian_architecture(), _packages())
            _finish(partial)
            partial.rename(image)
            print(f"lab: made {image.name} in {time.monotonic() - started:.0f} s")
    return image


def why_no_packages() -> str | None:
    """Return why the packages of the image cannot be had here (no mirror can be reached); None if they can."""
    with tempfile.TemporaryDirectory(prefix="edge-lab-") as folder:
        try:
            debootstrap(Path(folder) / "list", debian_architecture(), (), "--print-debs")
        except RuntimeError as error:
            return f"its packages cannot be had: {error}"
    return None


def _packages() -> list[str]:
    return [
        *_PACKAGES,
        *_MORE.get(suite(), ()),
        *(name.format(debian_architecture()) for name in (_KERNEL if is_machine() else ())),
    ]


def suite() -> str:
    """Return the release of Debian or Ubuntu: `$EDGE_LAB_SUITE`, or this machine's."""
    release = dict(
        line.partition("=")[::2] for line in Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    )
    return os.environ.get("EDGE_LAB_SUITE") or release["VERSION_CODENAME"].strip('"')


def debootstrap(root: Path, architecture: str, packages: Sequence[str], *options: str) -> None:
    """Make a root file system of `suite()` at `root`; RuntimeError with what debootstrap said if it fails."""
    command = ["debootstrap", "--variant=minbase", f"--arch={architecture}", *options]
    command += [f"--include={','.join(packages)}"] if packages else []
    mirror = os.environ.get("EDGE_LAB_MIRROR")
    where = [mirror] if mirror else []
    if suite() in _UBUNTU or "ID=ubuntu" in Path("/etc/os-release").read_text(encoding="utf-8").splitlines():
        command.append("--components=main,universe")
        # A debootstrap that is older than a suite does not know that all of Ubuntu's are made in one way.
        where = [mirror or _UBUNTU_MIRRORS[architecture], "/usr/share/debootstrap/scripts/gutsy"]
    command += [suite(), str(root), *where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    if done.returncode:
        raise RuntimeError(f"debootstrap ended with {done.returncode}: {done.stdout[-1500:]}{done.stderr[-500:]}")


def _finish(root: Path) -> None:
    """Add what makes a device of it: an administrator with sudo, host keys, no memory of having been booted."""
    inside = ["chroot", str(root)]
    for command in (
        ["useradd", "--create-home", "--shell", "/bin/bash", "--password", "*", ADMIN],
        ["ssh-keygen", "-A"],
        ["systemctl", "mask", "apt-daily.timer", "apt-daily-upgrade.timer", "getty@.service", "console-getty.service"],
    ):
        subprocess.run([*inside, *command], check=True, capture_output=True, timeout=120)
    (root / "etc/sudoers.d/admin").write_text(f"{ADMIN} ALL=(ALL:ALL) NOPASSWD: ALL\n")
    (root / "etc/sudoers.d/admin").chmod(0o440)
    (root / "etc/machine-id").write_text("")
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    (root / "etc/resolv.conf").write_text("")


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

"""Releases through a registry of another making: no login, no digest in its answers, uploads elsewhere, fixed tags.

It is strict about types, too: who asks for a blob as a manifest gets 406.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.manifests import make_certificates, ssh_key
from tests.support.ports import free_port
from tests.support.pulling import StatingClock, StatingDesk, published, put
from tests.support.raised import code_of, error_of
from tests.support.registry import Reachable
from tests.support.wait import wait_until

PYTHON = Path(__file__).parents[3] / ".cache" / "django-oci" / "bin" / "python"
_SITE = Path(__file__).parents[2] / "support/django_registry_site.py"


class DjangoRegistry(Reachable):
    """Started by `with`; `log` is what it wrote, a line per request."""

    login = None

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.certificates = make_certificates(directory / "tls")
        self.port = free_port()
        self._folder, self._log_path = directory / "kept", directory / "registry.log"
        self._folder.mkdir()
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> DjangoRegistry:
        environment = {**os.environ, "REGISTRY_URL": f"https://{self.host}"}
        subprocess.run([PYTHON, _SITE], check=True, env=environment, cwd=self._folder)
        tls = ["--certfile", self.certificates.certificate, "--keyfile", self.certificates.key]
        serve = [PYTHON, "-m", "gunicorn", "--bind", f"127.0.0.1:{self.port}", *tls, "--pythonpath", _SITE.parent]
        quiet = ["--access-logfile", "-", "--no-control-socket", f"{_SITE.stem}:application"]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*serve, *quiet], stdout=log, stderr=log, env=environment, cwd=self._folder
            )
        wait_until(lambda: "Booting worker" in self.log, what=f"django-oci on {self.port}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None


pytestmark = pytest.mark.slow(reason="asks django-oci, which only make test-rest installs")


@pytest.fixture
def registry(tmp_path):
    if not PYTHON.exists():
        pytest.skip("django-oci is not installed; run: bash .ci/setup rest")
    with DjangoRegistry(tmp_path / "registry") as running:
        yield running


def test_a_release_is_published_fetched_judged_and_serves_and_the_next_look_fetches_no_file(registry, device, root):
    bundle = root.bundle("one")
    done = put(registry, bundle)

    pulled = device.pull()

    assert pulled.outcome.result == "committed", pulled.outcome
    assert (device.current, pulled.record.digest) == (bundle.manifest.release, done.digest)
    before = registry.log.count('"GET /v2/farms/gates/blobs/')

    assert device.pull().outcome.result == "unchanged"
    assert registry.log.count('"GET /v2/farms/gates/blobs/') == before


def test_only_what_is_new_is_sent_and_fetched(registry, device, root):
    first, second = root.bundle("one", model=b"m" * 100_000), root.bundle("two", sequence=2, model=b"m" * 100_000)
    put(registry, first)
    device.pull()
    sent = put(registry, second, "stable-next")
    device.reference = registry.reference("stable-next")

    assert device.pull().outcome.result == "committed"

    model = next(one.sha256 for one in second.manifest.files if one.path == "model.onnx")
    assert registry.log.count(f"GET /v2/farms/gates/blobs/sha256:{model}") == 1
    assert sent.bytes_sent < 5000 < sent.bytes_total


def test_a_tag_that_the_registry_takes_and_does_not_move_is_told(registry, device, root):
    old, new = root.bundle("old"), root.bundle("new", sequence=2)
    put(registry, old)

    error = error_of(put, registry, new)

    assert error.code == "registry.answer"
    assert "farms/gates:stable-all: the registry has taken it and names something else" in error.problem
    device.pull()
    assert device.current == old.manifest.release


def test_a_ring_that_the_registry_does_not_move_is_not_taken_for_promoted(registry, root, tmp_path):
    with closing(StatingDesk(registry, ssh_key(tmp_path, "promoter"), StatingClock())) as desk:
        desk.promoter.promote(published(registry, desk, root.bundle("old")), "canary")
        new = published(registry, desk, root.bundle("new", sequence=2))

        assert code_of(desk.promoter.promote, new, "canary") == "registry.answer"

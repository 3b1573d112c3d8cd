"""Whether a device can serve a release at all, by the machine that its device classes name: asked before it is sent."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from edge.bundle.manifest import BundledFile, Role
from edge.capacity.stated import machines_among
from edge.config.load import load_pipeline
from edge.config.pipeline import Pipeline
from edge.delivery.deliverable import Deliverable
from edge.deploy.packing.capacity import check_bound
from edge.errors import DeployError, EdgeError
from edge.wire.facts import FactsAnswer

__all__ = ["BoundOfDevices"]

_NEEDED = (Role.PIPELINE, Role.MODEL, Role.CALIBRATION, Role.CERTIFICATE)


class BoundOfDevices:
    """Judges one release; thread-safe. What cannot be read of it is for the device to say."""

    def __init__(self, bundle: Deliverable) -> None:
        self._bundle = bundle
        self._lock = threading.Lock()
        self._known: dict[tuple[str, ...], tuple[str, ...] | DeployError] = {}

    def __call__(self, facts: FactsAnswer) -> Sequence[str]:
        """Return what speaks against it on a device of such classes.

        Raises:
            DeployError: `preflight.capacity`, if the release says that this is a reason not to run.
        """
        classes = tuple(sorted(platform.called for platform in machines_among(facts.compatible)))
        if not classes:
            return ()
        with self._lock:
            if classes not in self._known:
                self._known[classes] = self._found(classes)
            found = self._known[classes]
        if isinstance(found, DeployError):
            raise found
        return found

    def _found(self, classes: tuple[str, ...]) -> tuple[str, ...] | DeployError:
        with tempfile.TemporaryDirectory(prefix="edge-bound-") as folder:
            try:
                return check_bound(self._pipeline(Path(folder)), classes, is_sure=True)
            except DeployError as error:
                return error if error.code.startswith("preflight.") else ()
            except EdgeError:
                return ()

    def _pipeline(self, folder: Path) -> Pipeline:
        """Return the pipeline of the release, its files copied to where a model can be read."""
        manifest = self._bundle.manifest
        for file in (one for role in _NEEDED for one in manifest.files_of(role)):
            self._copy(file, folder / file.path)
        return load_pipeline(folder / manifest.files_of(Role.PIPELINE)[0].path, is_for_here=False)

    def _copy(self, file: BundledFile, place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        with self._bundle.opened(file) as content:
            place.write_bytes(content.read())

"""The blobs that a device does not have, small ones first, each from where it stopped."""

from __future__ import annotations

from collections.abc import Mapping

from edge.bundle.manifest import BundledFile
from edge.delivery.deliverable import Deliverable
from edge.delivery.link import Link, OnProgress
from edge.delivery.report import Report
from edge.errors import DeployError
from edge.wire.peer import PROVISION
from edge.wire.sending import HaveRequest
from edge.wire.verbs import HAVE

__all__ = ["upload"]

_PHASE = "upload"


def upload(link: Link, bundle: Deliverable, report: Report) -> None:
    """Send what is missing; the release has been offered over this link.

    Raises:
        DeployError: `bundle.file` if a file here has changed, `transfer.*`, `device.disk.*`.
    """
    files = {one.sha256: one for one in bundle.manifest.files}
    missing = link.ask(HAVE, HaveRequest(sha256=tuple(sorted(files)))).missing
    _check_asked_for(missing, files)
    total = sum(files[sha256].length_bytes - offset for sha256, offset in missing.items())
    done = 0
    with report.phase(_PHASE, total=total):
        for sha256, offset in sorted(missing.items(), key=lambda item: files[item[0]].length_bytes):
            taker = report.taker(_PHASE, before=done - offset, total=total)
            _send(link, bundle, files[sha256], offset, taker, report)
            done += files[sha256].length_bytes - offset


def _check_asked_for(missing: Mapping[str, int], files: Mapping[str, BundledFile]) -> None:
    for sha256, offset in missing.items():
        if sha256 not in files or offset > files[sha256].length_bytes:
            raise DeployError(
                "transfer.protocol",
                f"the device goes on at byte {offset} of blob {sha256[:12]}, which this release has not",
                hint=PROVISION,
            )


def _send(
    link: Link, bundle: Deliverable, file: BundledFile, offset: int, on_progress: OnProgress, report: Report
) -> None:
    with bundle.opened(file) as content:
        try:
            link.send_blob(file.sha256, content, offset=offset, length=file.length_bytes, on_progress=on_progress)
        except DeployError as error:
            if error.code != "transfer.hash":
                raise
            # What an earlier push left there was damaged; the device has forgotten it. A second time is no chance.
            report.note(_PHASE, f"{error.problem}; sending it once more", code=error.code)
            link.send_blob(file.sha256, content, offset=0, length=file.length_bytes, on_progress=on_progress)

"""The epoch of this start, which makes the numbers of its messages unique."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

from edge.reading import json_object, read_file
from edge.writing import sync_folder, write_whole

__all__ = ["EPOCH_FILE", "raise_epoch"]

EPOCH_FILE = "epoch.json"
_FORMAT = "edge.epoch/1"
_MAX_BYTES = 4096

_log = logging.getLogger(__name__)


def raise_epoch(state_dir: Path, *, now_s: Callable[[], float] = time.time) -> int:
    """Return an epoch that no earlier start of this device has used, and keep it before it is used.

    It is at least the seconds since 1970, a number that counting cannot have reached, and above the kept one, whatever
    the clock says. So it grows also over a start that could not keep its own (a disk that cannot be written), or kept
    it elsewhere (another user), but not by ones.
    """
    clock = max(1, int(now_s()))
    path = state_dir / EPOCH_FILE
    kept = _read_epoch(path)
    epoch = clock if kept is None else max(kept + 1, clock)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"format": _FORMAT, "epoch": epoch}).encode())
        sync_folder(path.parent)
    except OSError as error:
        _log.warning("epoch file not written path=%s error=%s: from the clock, epoch=%d", path, error.strerror, epoch)
    return epoch


def _read_epoch(path: Path) -> int | None:
    """None where nothing usable is kept."""
    try:
        kept = json_object(read_file(path, most_bytes=_MAX_BYTES))
        epoch = kept["epoch"]
        if kept["format"] != _FORMAT or type(epoch) is not int or epoch < 1:
            raise ValueError(f"expected format {_FORMAT} with a positive epoch")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        _log.warning("epoch file cannot be read path=%s error=%s: taken from the clock", path, error)
        return None
    return epoch

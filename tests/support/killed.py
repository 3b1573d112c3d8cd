"""What a process that was killed just before it synced a folder has left: seen meanwhile, and not yet kept."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from edge.device.durable import temporary
from tests.support.cut_files import CutFiles, Tree


@contextmanager
def killed_before_its_sync(files: CutFiles) -> Iterator[None]:
    """Let what is done within the block sync no folder; good for work that ends with its only one."""
    files.sync_dir = lambda path: None
    try:
        yield
    finally:
        del files.sync_dir


def only_named(tree: Tree, *paths: Path) -> CutFiles:
    """Return files that look like `tree`, in which the names of `paths` are not on the disk yet; all else is."""
    files = CutFiles(tuple(sorted((str(_before(Path(name), paths)), what) for name, what in tree)))
    for path in sorted(paths):  # a folder before what lies in it
        files.rename(temporary(path), path)
    return files


def _before(path: Path, renamed: Sequence[Path]) -> Path:
    if path == path.parent:
        return path
    here = _before(path.parent, renamed) / path.name
    return temporary(here) if path in renamed else here

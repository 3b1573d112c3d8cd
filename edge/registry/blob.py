"""A blob of a registry as a file: read from anywhere in it, and read on where a connection was lost."""

from __future__ import annotations

import io
import threading
from types import TracebackType

from edge.errors import DeployError
from edge.registry.client import RegistryClient
from edge.registry.https import RegistryResponse
from edge.registry.problems import is_passing

__all__ = ["BlobFile"]

_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)  # an agent gives a client up that is silent for half a minute
_SKIP_BYTES = 256 * 1024


class BlobFile(io.RawIOBase):
    """A blob of `length` bytes, asked for when read, unchecked. For one thread. DeployError `registry.*`."""

    def __init__(self, client: RegistryClient, sha256: str, length: int, *, stop: threading.Event) -> None:
        super().__init__()
        self._client, self._sha256, self._length, self._stop = client, sha256, length, stop
        self._offset = 0
        self._answer: RegistryResponse | None = None
        self.name = f"{client.reference}@sha256:{sha256[:12]}"

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to `offset`, from the beginning only."""
        if whence != io.SEEK_SET or not 0 <= offset <= self._length:
            raise ValueError(f"expected an offset of 0 to {self._length} from the beginning, got {offset}")
        if offset != self._offset:
            self._drop()
            self._offset = offset
        return offset

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at least one unless the end is reached, at most `size`."""
        left = self._length - self._offset
        most = left if size < 0 else min(size, left)
        for pause_s in (*_PAUSES_S, None):
            try:
                part = self._some(most) if most else b""
            except DeployError as error:
                self._drop()
                if pause_s is None or not is_passing(error) or self._stop.wait(pause_s):
                    raise
            else:
                self._offset += len(part)
                return part
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Leave the connection to the next."""
        self._drop()
        super().close()

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _some(self, most: int) -> bytes:
        if self._answer is None:
            self._begin()
            assert self._answer is not None
        part = self._answer.read(most)
        if not part:
            raise DeployError("registry.unreachable", f"{self.name}: it ends after {self._offset} bytes")
        return part

    def _begin(self) -> None:
        # Held before the first byte is read: whatever goes wrong from here on, `_drop` ends it.
        self._answer = answer = self._client.ask_blob(self._sha256, offset=self._offset, length=self._length)
        left = 0 if answer.status == 206 else self._offset  # some registries know no Range
        while left:
            skipped = len(answer.read(min(left, _SKIP_BYTES)))
            if not skipped:
                raise DeployError("registry.unreachable", f"{self.name}: it ends after {self._offset - left} bytes")
            left -= skipped

    def _drop(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None

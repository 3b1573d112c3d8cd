"""Several publishers as one."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from edge.deadline import Deadline
from edge.protocols import Publisher, TopicMessage

__all__ = ["FanoutPublisher"]


class FanoutPublisher:
    """Hands each message to every publisher, in the order given."""

    def __init__(self, publishers: Sequence[Publisher]) -> None:
        self._publishers = tuple(publishers)

    @property
    def is_broken(self) -> bool:
        """Whether there were publishers, and all of them are broken for good."""
        return bool(self._publishers) and all(publisher.is_broken for publisher in self._publishers)

    @property
    def alarm(self) -> str | None:
        return "; ".join(filter(None, (publisher.alarm for publisher in self._publishers))) or None

    def publish(self, message: TopicMessage) -> None:
        for publisher in self._publishers:
            publisher.publish(message)

    def flush(self, timeout_s: float) -> bool:
        """Wait for all of them within one timeout; return whether all have delivered everything."""
        deadline = Deadline.after(timeout_s)
        is_flushed = [publisher.flush(deadline.left_s) for publisher in self._publishers]
        return all(is_flushed)

    def by_output(self) -> Mapping[str, Mapping[str, int]]:
        return {name: one for publisher in self._publishers for name, one in publisher.by_output().items()}

    def close(self) -> None:
        """Close all of them side by side, also when one fails: none waits for the time that another takes."""
        closers = [threading.Thread(target=publisher.close, daemon=True) for publisher in self._publishers]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join()

"""Several publishers as one."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence

from edge.deadline import Deadline
from edge.protocols import Publisher, TopicMessage

__all__ = ["FanoutPublisher"]


class FanoutPublisher:
    """Hands each message to every publisher, in the order given; counts are the sums."""

    def __init__(self, publishers: Sequence[Publisher]) -> None:
        self._publishers = tuple(publishers)

    @property
    def is_broken(self) -> bool:
        """Whether there were publishers, and all of them are broken for good."""
        return bool(self._publishers) and all(publisher.is_broken for publisher in self._publishers)

    @property
    def alarm(self) -> str | None:
        """What is wrong with any of them."""
        return "; ".join(filter(None, (publisher.alarm for publisher in self._publishers))) or None

    def publish(self, message: TopicMessage) -> None:
        """Hand on."""
        for publisher in self._publishers:
            publisher.publish(message)

    def flush(self, timeout_s: float) -> bool:
        """Wait for all of them within one timeout; return whether all have delivered everything."""
        deadline = Deadline.after(timeout_s)
        is_flushed = [publisher.flush(deadline.left_s) for publisher in self._publishers]
        return all(is_flushed)

    def counts(self) -> Mapping[str, int]:
        """Return the sums; a message given to two publishers counts twice."""
        total: Counter[str] = Counter()
        for publisher in self._publishers:
            total.update(publisher.counts())
        return {"accepted": 0, "delivered": 0, "waiting": 0, "dropped": 0, **total}

    def by_output(self) -> Mapping[str, Mapping[str, int]]:
        """Return the counts of each output by its name, e.g. `mqtt`, `jsonl`."""
        return {name: one for publisher in self._publishers for name, one in publisher.by_output().items()}

    def close(self) -> None:
        """Close all of them side by side, also when one fails: none waits for the time that another takes."""
        closers = [threading.Thread(target=publisher.close, daemon=True) for publisher in self._publishers]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join()

"""The streams that are read: which puller reads what, which one ends, and which one begins when that has ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from edge.media.tally import add_counts
from edge.protocols import FrameSource
from edge.runtime.pipeline.batcher import Batcher
from edge.runtime.pipeline.counters import FrameCounters, report_stream
from edge.runtime.pipeline.puller import Puller
from edge.types import SourceCounts, StreamId

__all__ = ["RunningStreams"]

_log = logging.getLogger(__name__)


class RunningStreams:
    """Used by the thread of the service. No call waits: a source may take seconds to end.

    Args:
        sources: what is read at first.
        batcher, counters: of the pipeline.
        on_end: called when a stream that was removed is read no more.
    """

    def __init__(
        self,
        sources: Sequence[FrameSource],
        batcher: Batcher,
        counters: FrameCounters,
        *,
        on_end: Callable[[StreamId], None],
    ) -> None:
        self._batcher = batcher
        self._counters = counters
        self._on_end = on_end
        self.pullers = [self._puller(source) for source in sources]
        self._ending: list[Puller] = []
        self._next: dict[StreamId, FrameSource] = {}
        self._past: dict[StreamId, SourceCounts] = {}  # of the sources that a stream had before

    @property
    def all_pullers(self) -> Sequence[Puller]:
        """Those that read, and those that are about to end."""
        return [*self.pullers, *self._ending]

    @property
    def are_alive(self) -> bool:
        """Whether more frames may come."""
        return bool(self._next) or any(puller.is_alive for puller in self.all_pullers)

    def start(self) -> None:
        """Begin to read."""
        for puller in self.pullers:
            puller.start()

    def change(self, sources: Sequence[FrameSource], *, removed: Sequence[StreamId]) -> None:
        """Read `sources` from now on, new ones or in place of others, and `removed` no more."""
        for stream in removed:
            self._next.pop(stream, None)
        self._next.update({source.stream: source for source in sources})
        touched = {*removed, *(source.stream for source in sources)}
        ending = [puller for puller in self.pullers if puller.source.stream in touched]
        for puller in ending:
            puller.stop()
            self.pullers.remove(puller)
        self._ending += ending
        _log.info("streams reloaded begin=%s end=%s", ",".join(self._next) or "none", ",".join(removed) or "none")

    def settle(self) -> None:
        """Take note of what has ended, and begin what waits for that."""
        for puller in [one for one in self._ending if not one.is_alive]:
            self._ending.remove(puller)
            self._close_account(puller.source)
        busy = {puller.source.stream for puller in self._ending}
        for stream in [one for one in self._next if one not in busy]:
            puller = self._puller(self._next.pop(stream))
            self.pullers.append(puller)
            puller.start()

    def stop(self) -> Sequence[Puller]:
        """Ask all of them to end, begin no more, and return them."""
        self._next.clear()
        for puller in self.all_pullers:
            puller.stop()
        return self.all_pullers

    def counts(self) -> Mapping[StreamId, SourceCounts]:
        """Return what the sources of each stream have done, those that it had before included."""
        total: dict[StreamId, SourceCounts] = {stream: SourceCounts() for stream in self._next}
        for source in (puller.source for puller in self.all_pullers):
            total[source.stream] = add_counts(total.get(source.stream, SourceCounts()), source.counts())
        return {stream: add_counts(self._past.get(stream, SourceCounts()), one) for stream, one in total.items()}

    def _puller(self, source: FrameSource) -> Puller:
        return Puller(source, self._batcher, self._counters)

    def _close_account(self, source: FrameSource) -> None:
        stream = source.stream
        self._past[stream] = add_counts(self._past.get(stream, SourceCounts()), source.counts())
        if stream not in self._next:
            one = report_stream(stream, self._past[stream], self._counters)
            dropped = {reason.value: count for reason, count in one.dropped.items()}
            _log.info(
                "stream removed stream=%s decoded=%d inferred=%d dropped=%s", stream, one.decoded, one.inferred, dropped
            )
            self._on_end(stream)

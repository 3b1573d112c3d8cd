"""Figures in the text format of Prometheus. The only importer of `prometheus_client`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["CONTENT_TYPE", "Distribution", "Exposition", "Metric"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """How many of all were at most as large as each bound, which rise; `total` is the sum of all values."""

    bounds: Sequence[float]
    at_most: Sequence[int]
    count: int
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric: its samples by the values of its `labels`, in their order. A counter's name ends with `_total`."""

    name: str
    help: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: Sequence[str] = ()
    samples: Mapping[tuple[str, ...], float | Distribution] = field(default_factory=dict)


class Exposition:
    """Asks for the metrics when it is read, and adds those of the process itself."""

    def __init__(self, metrics: Callable[[], Iterable[Metric]]) -> None:
        from prometheus_client import CollectorRegistry, ProcessCollector

        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collector(metrics))
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """Return all of it."""
        from prometheus_client import generate_latest

        return bytes(generate_latest(self._registry))


class _Collector:
    def __init__(self, metrics: Callable[[], Iterable[Metric]]) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Any]:
        """Say nothing beforehand: what there is depends on the moment."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Yield a family for each metric."""
        for metric in self._metrics():
            yield _family(metric)


def _family(metric: Metric) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    family = kinds[metric.kind](metric.name, metric.help, labels=list(metric.labels))
    for values, sample in metric.samples.items():
        if isinstance(sample, Distribution):
            buckets = [
                (str(float(bound)), float(count)) for bound, count in zip(sample.bounds, sample.at_most, strict=True)
            ]
            family.add_metric(list(values), buckets=[*buckets, ("+Inf", float(sample.count))], sum_value=sample.total)
        else:
            family.add_metric(list(values), sample)
    return family

"""Figures in the text format of Prometheus. The only importer of `prometheus_client`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["CONTENT_TYPE", "Distribution", "Exposition", "metric"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """How many of all were at most as large as each bound, which rise; `total` is the sum of all values."""

    bounds: Sequence[float]
    at_most: Sequence[int]
    count: int
    total: float


class Exposition:
    """Asks for the metrics, each as `metric` gives it, when it is read, and adds those of the process itself."""

    def __init__(self, metrics: Callable[[], Iterable[Any]]) -> None:
        from prometheus_client import CollectorRegistry, ProcessCollector

        self.collect = metrics  # called by the registry, which is told nothing beforehand: it depends on the moment
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        from prometheus_client import generate_latest

        return bytes(generate_latest(self._registry))


def metric(
    kind: Literal["counter", "gauge", "histogram"],
    name: str,
    text: str,
    labels: Sequence[str],
    samples: Mapping[Any, float | Distribution],
) -> Any:
    """Return a metric: samples by the values of its `labels`, in their order. A counter's name ends with `_total`."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    family = kinds[kind](name, text, labels=list(labels))
    for values, sample in samples.items():
        if isinstance(sample, Distribution):
            bounds = [*(str(float(bound)) for bound in sample.bounds), "+Inf"]
            counts = [float(count) for count in (*sample.at_most, sample.count)]
            family.add_metric(list(values), buckets=list(zip(bounds, counts, strict=True)), sum_value=sample.total)
        else:
            family.add_metric(list(values), sample)
    return family

"""A calibration on a cluster begins with a question to each worker, which may die meanwhile."""

from types import SimpleNamespace

import pytest

from edge.errors import ClusterError, ConfigError
from edge.quantize.cluster import Cluster, Likeness

LIKENESS = Likeness(())


class Client:
    """Stands in for Dask's, which answers with an OSError for a worker that it does not reach."""

    status = "running"
    scheduler = SimpleNamespace(ncores=None, address="tcp://gate:8786")

    def __init__(self, *answers):
        self.answers = answers

    def run(self, *_, **__):
        return {f"tcp://gate:{port}": answer for port, answer in enumerate(self.answers, 1234)}

    def sync(self, *_, **__):
        return {"tcp://gate:1234": 1}


def test_a_worker_that_dies_while_it_is_asked_is_passed_over():
    assert Cluster(Client(OSError("gone"), LIKENESS.here()), LIKENESS).threads() == 1


def test_a_scheduler_through_which_no_worker_answers_is_given_up():
    with pytest.raises(ClusterError, match="tcp://gate:8786"):
        Cluster(Client(OSError("gone")), LIKENESS)


def test_all_workers_that_differ_are_named():
    name, has = LIKENESS.here()
    with pytest.raises(ConfigError) as caught:
        Cluster(Client((name, has | {"onnx 0"}), ImportError("edge"), (name, has)), LIKENESS)
    assert [port for port in ("1234", "1235", "1236") if port in str(caught.value)] == ["1234", "1235"]

"""A calibration on a cluster begins with a question to each worker, which may die meanwhile."""

from types import SimpleNamespace

import pytest

from edge.errors import ClusterError
from edge.quantize.cluster.crew import Cluster

LIKENESS = SimpleNamespace(kinds=(), require=lambda answers: None)


class Client:
    """Stands in for Dask's, whose question to a worker that has just died is not answered in time."""

    status = "running"
    scheduler = SimpleNamespace(ncores=None, address="tcp://gate:8786")

    def __init__(self, unanswered):
        self.unanswered = unanswered

    def run_on_scheduler(self, *_, **__):
        return {}

    def run(self, *_, **__):
        if self.unanswered:
            self.unanswered -= 1
            raise TimeoutError
        return {"tcp://gate:1234": {}}

    def sync(self, *_, **__):
        return {"tcp://gate:1234": 1}


def test_a_worker_that_dies_while_it_is_asked_is_not_asked_again():
    client = Client(unanswered=2)
    with Cluster(client, LIKENESS) as crew:
        assert crew.threads() == 1
    assert client.unanswered == 0


def test_a_scheduler_through_which_no_worker_answers_is_given_up():
    with pytest.raises(ClusterError, match="tcp://gate:8786"), Cluster(Client(unanswered=99), LIKENESS):
        pass

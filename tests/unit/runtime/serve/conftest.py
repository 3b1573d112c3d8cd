import json

import pytest

from edge.model.inspect import inspect_model
from tests.support import models


class Published:
    """What was published, as JSON."""

    def __init__(self):
        self.all = []

    def publish(self, message):
        assert message.is_retained
        self.all.append(json.loads(message.encode()))


@pytest.fixture
def published():
    return Published()


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    return inspect_model(models.yolov8(tmp_path_factory.mktemp("model") / "model.onnx"))

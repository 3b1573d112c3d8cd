"""The search for methods over exports of today: its table has to be one that is used."""

import pytest

from tests.support.exports.build import WHOLE, build
from tests.support.exports.product import faults_of

pytestmark = pytest.mark.slow(reason="a whole search on a model of hundreds of nodes")


# Convolutions alone, attention of each kind, and each kind of head.
SEARCHED = ["v8-default", "v10-e2e", "12-default", "26-default", "26-e2e"]
SEARCHED += ["11-pose-default", "26-segment-default", "26-obb-e2e"]


@pytest.mark.parametrize("variant", [one for one in WHOLE if one.id in SEARCHED], ids=lambda one: one.id)
def test_the_search_for_methods_ends_with_a_table_that_is_used(tmp_path, variant):
    assert faults_of(build(variant, tmp_path / "m.onnx"), tmp_path, method="auto") == []

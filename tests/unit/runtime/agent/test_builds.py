"""What the builder has left is another process's word."""

import pytest

from edge.errors import DeployError
from edge.runtime.agent.builds import built_of


def test_a_result_is_answered_with_what_it_says_of_the_engine():
    answer = built_of({"ok": True, "release": "0" * 12, "key": "1" * 16, "seconds": 2.5, "precision": "fp16"})
    assert (answer.key, answer.seconds, answer.precision, answer.skipped) == ("1" * 16, 2.5, "fp16", False)


def test_a_result_that_no_builder_writes_is_a_build_that_failed():
    with pytest.raises(DeployError, match="cannot be read") as caught:
        built_of({"key": 7})
    assert caught.value.code == "build.failed"

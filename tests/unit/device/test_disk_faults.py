"""F-5: the n-th call of the file system fails; see tests/support/faults.py."""

import errno

import pytest

from tests.support.faults import ACTIONS, CODES, count_calls, try_fault

NUMBERS = list(CODES)


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("lasts", [False, True], ids=["once", "from then on"])
def test_f5_a_call_that_fails_leaves_a_serving_release_and_a_typed_error(name, lasts):
    # Every call fails once here, each with the next error; `python -m tests.reliability` tries all five on each.
    violations = [
        violation
        for at in range(count_calls(name))
        for violation in try_fault(name, at=at, number=NUMBERS[at % len(NUMBERS)], lasts=lasts)
    ]
    assert violations == []


def test_f5_a_full_disk_is_told_at_every_call_that_needs_space():
    violations = [
        violation
        for at in range(count_calls("push"))
        for violation in try_fault("push", at=at, number=errno.ENOSPC, lasts=True)
    ]
    assert violations == []

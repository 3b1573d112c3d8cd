"""docs/faults.md names the tests that there are, and each fault from F-1 to F-26 has one."""

from tests.faults import FAULTS, PAGE, by_fault, page


def test_the_page_names_every_test_of_a_fault_and_no_other():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.faults"


def test_every_fault_has_a_test_and_every_test_a_fault_that_is_described():
    found = by_fault()
    assert set(range(1, 27)) <= set(found)
    assert set(found) == set(FAULTS)


def test_a_test_of_several_faults_stands_at_each_of_them():
    name = "test_f1_f2_f3_every_state_after_a_cut_and_after_a_second_one_is_good"
    found = by_fault()
    assert [number for number in found if ("tests/unit/device/test_power_cuts.py", name) in found[number]] == [1, 2, 3]

"""What others write, read by what reads it: `make fuzz` by coverage, `tests/unit/test_fuzz.py` by Hypothesis."""

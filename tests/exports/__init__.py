"""The real exporters, by hand: what they write today, held against the builder of the tests."""

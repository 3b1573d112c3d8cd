"""A release goes from ring to ring by what its devices say: rules, judgement, what is kept. No I/O and no clock."""

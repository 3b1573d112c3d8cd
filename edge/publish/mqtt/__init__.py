"""The broker: one connection, its life, and what travels over it in both directions."""

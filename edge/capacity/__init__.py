"""How many cameras a machine serves with a model: the bound that cannot be beaten, and what is typical."""

"""`edge-deploy new`: from addresses and a model to a commented pipeline file."""

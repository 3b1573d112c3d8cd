"""From a pipeline file to a signed bundle."""

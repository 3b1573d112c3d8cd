"""From a model to a plan: parse, configure, build, and account for what came of it."""

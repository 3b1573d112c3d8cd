"""HTTP on this machine alone: a small server that nobody can hold up, figures for Prometheus, the status page."""

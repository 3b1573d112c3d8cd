"""HTTP on this machine alone: a small bounded server, figures for Prometheus, the status page."""

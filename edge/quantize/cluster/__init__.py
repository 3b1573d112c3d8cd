"""The work of a calibration, an evaluation or a comparison over the workers of a Dask cluster (docs/cluster.md)."""

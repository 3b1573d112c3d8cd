"""A bundle is put into an OCI registry, from where devices fetch it."""

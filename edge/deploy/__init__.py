"""The workstation: new pipelines, packing and signing, provisioning, push, registry, fleets, listening."""

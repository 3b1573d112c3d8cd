"""A machine of round figures, and layers of chosen intensity."""

import msgspec
import pytest

from edge.model.layer_account import LayerAccount, ModelAccount
from edge.roofline.machines import Machine, MachineTable
from edge.types import Precision


@pytest.fixture
def machine():
    """8 bytes a nanosecond; 100 operations a nanosecond in INT8, 50 in FP16, 10 in FP32; 1000 bytes of cache."""
    content = {
        "sources": {"a": "made up"},
        "architectures": {
            "x": {"name": "X", "source": "a", "vector": {"fp32": 1}, "tensor": {"int8": 10, "fp16": 5}},
            "old": {"name": "Old", "source": "a", "vector": {"fp32": 1}},
        },
        "dla": {"int8": 1, "sparse_factor": 2, "source": "a"},
        "machines": {
            key: {
                "name": key.upper(),
                "architecture": architecture,
                "gpu": {"sm_count": 10, "mhz": 1000, "source": "a", "l2_mib": cache},
                "memory": {"bus_bits": 32, "mhz": 1000, "source": "a"},
                "modes": {"slow": {"cpu_cores": 1, "tpc_count": 1, "gpu_mhz": 500, "memory_mhz": 250}},
            }
            for key, architecture, cache in (
                ("m", "x", 1000 / 2**20),
                ("old", "old", None),
                ("unsaid", "x", None),
            )
        },
    }
    table = msgspec.convert(content, MachineTable)
    return lambda key="m", mode=None: Machine(key=key, facts=table.machines[key], table=table, mode_name=mode)


@pytest.fixture
def layer():
    def make(name, *, operations, moved, weights=0, precision=Precision.INT8):
        return LayerAccount(
            name=name, op_type="Conv", fused=("Conv",), precision=precision, operations=operations, parameters=0,
            weight_bytes=weights, read_bytes=moved - weights, written_bytes=0,
        )  # fmt: skip

    return make


@pytest.fixture
def model():
    return lambda *layers, batch=1: ModelAccount(batch=batch, precision=layers[0].precision, layers=layers)

"""A plan that also gives out tensors from inside the float network: for observing, on every TensorRT."""

from __future__ import annotations

from collections.abc import Sequence

from edge.engine.tensorrt.binding import TensorRtLibrary, make_logger
from edge.engine.tensorrt.build.config import make_config
from edge.engine.tensorrt.build.network import infos_of, network_tensors, parsed_network
from edge.engine.tensorrt.build.serialize import serialized
from edge.engine.tensorrt.build.shapes import set_shapes
from edge.engine.tensorrt.device import TensorrtDevice
from edge.engine.tensorrt.log import MessageLog
from edge.engine.tensorrt.options import Options
from edge.engine.tensorrt.plan import PlanHeader
from edge.engine.tensorrt.routes import Route
from edge.errors import EngineError
from edge.types import ModelSpec, Precision

__all__ = ["build_marked"]

_FAST = 1  # seconds instead of minutes: what is looked into is run on some hundred images only


def build_marked(
    library: TensorRtLibrary,
    device: TensorrtDevice,
    spec: ModelSpec,
    content: bytes,
    tensors: Sequence[str],
    *,
    max_batch: int,
    log: MessageLog | None = None,
) -> tuple[PlanHeader, bytes]:
    """Return what TensorRT serialized of the ONNX `content`, and a header that lists all that it gives out.

    It computes in float32, without TF32. A Q/DQ model is built, too, where networks are strongly typed: its levels are
    then what the pairs state.

    Args:
        library: that builds.
        device: for which.
        spec: what the model is.
        content: the model.
        tensors: to give out beside its output; the input is none of them.
        max_batch: most rows at once.
        log: takes what TensorRT says.

    Raises:
        EngineError: if TensorRT cannot build it, or has no tensor of such a name.
    """
    log = log or MessageLog()
    logger = make_logger(library, log)
    builder = library.trt.Builder(logger)
    is_strong = library.abilities.has_strong_typing and (spec.is_quantized or not library.abilities.has_precision_flags)
    route = Route.FLOAT_STRONG if is_strong else Route.FLOAT_WEAK
    network = parsed_network(library, builder, logger, content, name=spec.name, is_strongly_typed=is_strong)
    config = make_config(
        library, builder, device, Options(optimization_level=_FAST), route=route, precision=Precision.FP32
    )
    set_shapes(builder, config, network, spec, max_batch=max_batch)
    known = {tensor.name: tensor for tensor in network_tensors(network)}
    given_out = {network.get_output(index).name for index in range(network.num_outputs)}
    for name in dict.fromkeys(tensors):
        if name not in known:
            raise EngineError(f'{spec.name}: TensorRT has no tensor "{name}"')
        if name not in given_out:
            network.mark_output(known[name])
    inputs, outputs = infos_of(network)
    header = PlanHeader(
        library=library.name,
        version=library.version,
        compute_capability=device.compute_capability,
        device=device.name,
        precision=Precision.FP32.value,
        route=route.value,
        max_batch=max_batch,
        batch=spec.batch,
        inputs=inputs,
        outputs=outputs,
    )
    return header, serialized(builder, network, config, log, spec.name)

"""An execution context of TensorRT whose tensors lie where we say, in either of its ways to say that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edge.engine.tensorrt.runtime import Loaded
from edge.errors import EngineError

if TYPE_CHECKING:
    from edge.engine.tensorrt.binding import IProfiler

__all__ = ["Execution"]


class Execution:
    """One context. Work of one context runs in one stream at a time.

    Args:
        loaded: the engine.
        name: of the model, for errors.
        stream: handle of the stream in which it is set up.

    Raises:
        EngineError: if TensorRT gives no context.
    """

    def __init__(self, loaded: Loaded, *, name: str, stream: int) -> None:
        self._loaded, self._name = loaded, name
        context: Any = loaded.engine.create_execution_context()
        if context is None:
            raise EngineError(f"{name}: TensorRT gives no execution context: {loaded.log.reason()}")
        self._context = context
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        # Until 8.6 an optimization profile belonged to one context, the first; a later one has none.
        self.has_profile = context.active_optimization_profile >= 0 or context.set_optimization_profile_async(0, stream)

    def place(self, addresses: Mapping[str, int]) -> None:
        """Say where the tensors lie on the GPU, all of them; nothing is done where they lie there already.

        Raises:
            EngineError: if TensorRT has no such tensor.
        """
        if self._addresses == addresses:
            return
        self._addresses = dict(addresses)
        if self._loaded.library.abilities.has_execute_v3:
            for tensor, address in addresses.items():
                self._check(self._context.set_tensor_address(tensor, address), f"tensor {tensor}")

    def set_shape(self, tensor: str, shape: Sequence[int]) -> None:
        """Say how large an input is; nothing is done where it is that large already.

        Raises:
            EngineError: if the engine was not built for it.
        """
        wanted = tuple(shape)
        if self._shapes.get(tensor) == wanted:
            return
        if self._loaded.library.abilities.has_execute_v3:
            is_set = self._context.set_input_shape(tensor, wanted)
        else:
            index = self._loaded.engine.get_binding_index(tensor)
            is_set = self._context.set_binding_shape(index, wanted)
        self._check(is_set, f"{tensor} of shape {wanted}")
        self._shapes[tensor] = wanted

    def shape_of(self, tensor: str) -> tuple[int, ...]:
        """Return how large a tensor is for the shapes that were set."""
        if self._loaded.library.abilities.has_execute_v3:
            return tuple(self._context.get_tensor_shape(tensor))
        return tuple(self._context.get_binding_shape(self._loaded.engine.get_binding_index(tensor)))

    def enqueue(self, stream: int) -> None:
        """Give one inference to a stream, a handle.

        Raises:
            EngineError: if TensorRT refuses.
        """
        if self._loaded.library.abilities.has_execute_v3:
            is_given = self._context.execute_async_v3(stream)
        else:
            is_given = self._context.execute_async_v2(self._bindings(), stream)
        self._check(is_given, "inference")

    def report_to(self, profiler: IProfiler) -> None:
        """Have the layers of each inference from now on timed, and told to `profiler` when `report` asks for it.

        It has to live as long as this. Inferences are slower with it.
        """
        self._context.profiler = profiler
        self._context.enqueue_emits_profile = False  # else each inference is waited for where it is given

    def report(self) -> None:
        """Tell the profiler what the layers of the last inference took; its stream has done it.

        Raises:
            EngineError: if TensorRT refuses.
        """
        self._check(self._context.report_to_profiler(), "to report what its layers took")

    def close(self) -> None:
        """Free it; nothing of it may be running."""
        self._context = None

    def _bindings(self) -> list[int]:
        engine = self._loaded.engine
        return [self._addresses[engine.get_binding_name(index)] for index in range(engine.num_bindings)]

    def _check(self, is_done: bool, what: str) -> None:
        if not is_done:
            raise EngineError(f"{self._name}: TensorRT refuses {what}: {self._loaded.log.reason()}")

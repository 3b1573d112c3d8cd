"""The first batch of an engine, before anybody waits for it."""

from __future__ import annotations

from edge.protocols import Engine

__all__ = ["warm_up"]


def warm_up(engine: Engine) -> None:
    """Infer one full batch of each canvas as it is: memory is touched, kernels are chosen, and a broken engine shows.

    Raises:
        EngineError: if the inference failed.
    """
    for index in range(len(engine.canvases)):
        engine.start(index, engine.max_batch)
        engine.wait(index)

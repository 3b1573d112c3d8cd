"""Which range each tensor gets and which layers stay in float: found by measuring what INT8 does to the outputs.

    1. methods    one method for all tensors, each measured
    2. outliers   layers that alone carry a large part of the error: found by halving
    3. methods    again, with the last layers, the depthwise ones, or both in float
    4. floats     each other layer in float alone, then the best of them together
    5. ranges     each tensor by another method alone, then the best of them together
    6. methods    once more, with the layers in float that were found

Steps 2 and 4 may go by a measure of their own (`search`). What the errors of step 6 cannot tell from the best is handed
out beside it, to be settled by another measure (`SearchResult.settled_by`).

Nothing here knows an engine, an image or a label: `Measure` does, and is handed in.
"""

from edge.calibrate.search.measurements import ChoiceKey, FloatLimits, Int8Choice, Layer, Measure
from edge.calibrate.search.search import SearchResult, search

__all__ = ["ChoiceKey", "FloatLimits", "Int8Choice", "Layer", "Measure", "SearchResult", "search"]

"""INT8 against float, layer by layer: the same images through both models, and both timed on this machine."""

from edge.quantize.comparison.compare import Comparison, ComparisonOptions, compare_model, images_to_compare
from edge.quantize.comparison.times import TIMED_RUNS

__all__ = ["TIMED_RUNS", "Comparison", "ComparisonOptions", "compare_model", "images_to_compare"]

"""From a float model to INT8, and the proof: calibration, evaluation, comparison, tables; handed an engine kind."""

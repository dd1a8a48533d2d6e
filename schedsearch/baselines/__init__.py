"""Hand-made schedules, as functions of a placement and a number of micro-batches."""

from schedsearch.baselines.pipelines import UnsuitablePlacementError, gpipe, one_f_one_b

__all__ = ["UnsuitablePlacementError", "gpipe", "one_f_one_b"]

"""Tessel's own search, as a baseline beside ours: Algorithm 1, and the time-optimal search."""

from schedsearch.baselines.tessel.algorithm import tessel
from schedsearch.baselines.tessel.results import TesselProgress, TesselResult, TesselSweep
from schedsearch.baselines.tessel.time_optimal import TimeOptimalProgress, TimeOptimalResult, time_optimal

__all__ = [
    "TesselProgress",
    "TesselResult",
    "TesselSweep",
    "TimeOptimalProgress",
    "TimeOptimalResult",
    "tessel",
    "time_optimal",
]

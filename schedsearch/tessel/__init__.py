"""Tessel's own search, as a baseline beside ours: Algorithm 1, and the time-optimal search."""

from schedsearch.tessel.algorithm import tessel
from schedsearch.tessel.results import TesselProgress, TesselResult, TesselSweep
from schedsearch.tessel.time_optimal import TimeOptimalProgress, TimeOptimalResult, time_optimal

__all__ = [
    "TesselProgress",
    "TesselResult",
    "TesselSweep",
    "TimeOptimalProgress",
    "TimeOptimalResult",
    "tessel",
    "time_optimal",
]

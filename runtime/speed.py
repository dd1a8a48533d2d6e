"""The clocks of a plan in a training loop of one's own; see `runtime.clocks.speed`."""

from runtime.clocks.speed import SpeedController

__all__ = ["SpeedController"]

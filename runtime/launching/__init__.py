"""The scripts of all devices started, watched and measured.

It does not know what a device does: that is `runtime.loops`. Read `processes` (the ways to start devices:
under torchrun, forked, or as threads in turns), then `launch` (one call from scripts to a measurement, which
follows the run and says why it failed, and the command of torchrun).
"""

"""The scripts of all devices started, watched and measured.

It does not know what a device does: that is `runtime.loops`. Read `launch` (one call
from scripts to a measurement, and the command of torchrun), `following` (progress, and why a run failed),
then the ways to start devices: `processes` (torchrun, or forked) and `in_process` (threads in turns).
"""

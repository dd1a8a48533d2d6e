"""A script carried out by one process: its device computes blocks, moves tensors, and trains.

It does not know schedules, nor how the processes of a run are started.

Read `run_options` (how a process takes part), `device` (the script's calls), `place` and `clock_requests`
(observers of the device), `process_memory`, `device_context` (all that a device runs with), `train`
(iterations), `checkpoint`, `results` (what a process leaves behind), `measurement` (what a run returned),
`entry` (what scripts import).
"""

"""A script carried out by one process: its device computes blocks, moves tensors, and trains.

It does not know schedules, nor how the processes of a run are started.

Read `run_options` (how a process takes part), `device` (the script's calls), `place` and `clock_requests`
(observers of the device), `device_context` (all that a device runs with), `run_checkpoints`
(which iterations have one), `evaluation` (forward blocks alone), `batches` (what a loop of one's own reads),
`pipeline` (the iterations of such a loop, or of a script), `train` (the loop of scripts), `results` (what a
process leaves behind), `measurement` (what a run returned), `entry` (what scripts import).
"""

"""The calls of a script carried out by one process: its device computes blocks and moves tensors.

It does not know schedules, nor training loops, nor how the processes of a run are started.

Read `run_options` (options of a run), `slurm` and `process` (which device a process is), `device` (the
script's calls), `side_streams` (streams beside the one that computes), `place`, `clock_requests` and
`online_profile` (observers of the device), `device_context` (all that a device runs with), `results`
(what a process leaves behind), `measurement` (what a run returned).
"""

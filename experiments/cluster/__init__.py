"""Many jobs on GPUs of several types, simulated: ``schedsearch cluster``.

- `options`; `workload`: what they name: GPUs, jobs and policies
- `outcome_tables`, `pictures`: the outcome of a simulation as tables and data, in words, and drawn
- `real_run`: a simulation, and the same jobs on Ray
- `task`: all of it, and one decision of a policy
"""

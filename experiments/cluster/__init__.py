"""Many jobs on GPUs of several types, simulated: ``schedsearch cluster``.

- `options`; `gpu_numbers`, `workload`, `chosen_policies`: what they name: GPUs, jobs and policies
- `decision`: one decision of a policy
- `outcome_tables`, `facts`, `pictures`: the outcome of a simulation as tables and data, in words, and drawn
- `real_run`: a simulation, and the same jobs in processes of this machine
- `task`: all of it
"""

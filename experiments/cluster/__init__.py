"""Many jobs on GPUs of several types, simulated: ``schedsearch cluster``.

- `options`; `gpu_numbers`, `workload`, `chosen_policies`: what they name: GPUs, jobs and policies
- `decision`: one decision of a policy
- `outcome_files`: what a simulation found, as files
- `running`: simulations, one for each policy, load and seed
- `real_run`: a simulation, and the same jobs in processes of this machine
- `loads`: policies side by side, with confidence intervals
- `pictures`, `report`: one simulation, and policies side by side
- `task`: all of it
"""

"""From the options of `experiments.cluster` to simulations and decisions, their figures and files.

- `gpu_numbers`, `workload`, `chosen_policies`: what the options name: GPUs, jobs and policies
- `decision`: one decision of a policy
- `outcome_files`: what a simulation found, as files
- `running`: simulations, one for each policy, load and seed
- `loads`: policies side by side, with confidence intervals
- `pictures`: the figures of one simulation, and of policies side by side
"""

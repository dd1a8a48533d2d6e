"""From a model and a cluster to the plan whose schedule is best.

- `ranking`: placements ranked by the schedules that are found for them
- `planner`: the plans of a model on a cluster, in several shapes, ranked so
- `explanation`: what was chosen and why, in words
"""

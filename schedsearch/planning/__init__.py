"""From a model and a cluster to the plan whose schedule is best.

- `plans`: a plan with its schedule, and all of a model on a cluster as a result
- `shape_plans`: the plans of each shape made placements
- `uniform_run`: a layout of a training framework, timed by a hand-made schedule
- `layout_plans`: the best layouts of a model on a cluster, and a layout as trainers run it
- `layout_parts`: time and memory of layouts by part, side by side
- `ranking`: plans ranked by the schedules that are found for them
- `power`: the modelled power of a placement whose GPUs are of several kinds
- `planner`: the plans of both planners in all shapes that are asked for, ranked
- `explanation`: what was chosen, in words
"""

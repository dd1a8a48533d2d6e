"""From a model and a cluster to the plan whose schedule is best.

- `ranking`: placements ranked by the schedules that are found for them
- `uniform_run`: a layout of a training framework, timed by a hand-made schedule
- `trainer_runs`: layouts, and plans in chunks, as trainers run them
- `layout_plans`: the best layouts of a model on a cluster
- `plans`: the plans of a model on a cluster, as a result
- `shape_plans`: the plans of each shape, and layouts, made placements
- `short_memory`: why nothing fits, and how much memory would do
- `power`: the modelled power of a placement whose GPUs are of several kinds
- `planner`: the plans of both planners in all shapes that are asked for, ranked
- `layout_parts`: time and memory of layouts by part, side by side
- `explanation`: what was chosen and why, in words
"""

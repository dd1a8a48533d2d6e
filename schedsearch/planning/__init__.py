"""From a model and a cluster to the plan whose schedule is best.

- `plans`: a plan with its schedule, and all of a model on a cluster as a result
- `uniform_run`: a layout of a training framework, timed by a hand-made schedule
- `layout_plans`: the best layouts of a model on a cluster, their divisions, and a layout as trainers run it
- `ranking`: plans timed by the schedules that are made and found for them
- `planner`: layouts and plans of strategies in all shapes that are asked for, ranked
- `explanation`: what was chosen, in words
"""

"""A placement and a schedule for it: the steps that most commands begin with, and ``schedsearch search``.

- `options`, `placement_options`: what can be said; `planned_options`: where nothing is said, what a plan says
- `plans`, `data_parallel`: placements of a plan, and on groups of GPUs
- `profile_reading`, `placement_building`, `schedule_finding`: what the options name
- `results`: what the search returns; `search_step`: the schedule, written and described
- `pictures`, `report`: what people look at; `task`: all of it
"""

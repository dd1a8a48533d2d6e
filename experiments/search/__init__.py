"""A placement and a schedule for it: the steps that most commands begin with, and ``schedsearch search``.

- `kinds`: the kinds of placements; `options`: what else can be said, and what a plan says where nothing is
- `profile_reading`, `problem`: a placement with its costs, read once; `schedule_finding`: a schedule for it
- `results`: what the search returns; `scenario_step`: one order for several scenarios; `search_step`: the
  schedule, written and described; `trainer_export`: its layers and modes for trainers
- `pictures`, `report`: pictures and the HTML page; `task`: all of it
"""

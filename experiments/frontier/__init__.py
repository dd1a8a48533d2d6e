"""A clock for each block of a schedule: ``schedsearch frontier``.

- `options`; `results`: what the steps return
- `schedule_selection`: of several schedules the one of least energy; modes, order and clocks together
- `energy_methods`, `energy_baselines`, `savings`: the frontier, what it is compared with, what it saves
- `clock_latency`, `constrained_plans`: plans that a real job can run
- `frontier_files`, `constrained_plan_files`: all of them as files and in words
- `pictures`, `report`: what people look at; `task`: all of it
"""

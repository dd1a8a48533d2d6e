"""The steps from options to a schedule and its clocks, which the commands share; no run, no report.

- `profile_reading`, `placement_building`, `schedule_finding`: what the options name
- `results`: what steps return; `search_step`: the schedule, written and described
- `schedule_selection`: of several schedules the one of least energy
- `energy_methods`, `energy_baselines`, `savings`: the frontier, what it is compared with, what it saves
- `clock_latency`, `constrained_plans`: plans that a real job can run
- `frontier_files`, `constrained_plan_files`: all of them as files and in words
"""

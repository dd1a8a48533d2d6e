"""Plans that were run, what is predicted of them, and how far off it is: ``schedsearch predict``.

- `options`; `measured_folder`: a folder of profiles, links and plans with what was measured of them
- `blocking_order`: 1F1B where transfers occupy both of their ends
- `run_table`: tables of runs by model, GPUs and degrees; `run_prediction`: time and memory of each
- `recipe_table`: layouts that others publish, priced beside the best of ours
- `schedule_table`: schedules of one model by throughput, beside ours of that name
- `prediction`: time and memory of each plan, and whether plans come in the order of the measurements
- `errors`: how far off they are
- `task`: all of it
"""

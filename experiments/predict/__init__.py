"""Plans that were run, their predictions, and how far off these are: ``schedsearch predict``.

- `options`; `measured_folder`: a folder of profiles, links and plans with their measurements
- `blocking_order`: 1F1B where transfers occupy both of their ends
- `run_table`: tables of runs by model, GPUs and degrees; `run_prediction`: time and memory of each
- `stage_memory`: tensors of a run's fullest stage
- `recipe_table`: layouts that others publish, priced beside the best of ours
- `prediction`: time and memory of each plan, and whether plans come in the order of the measurements
- `errors`: how far off they are
- `task`: all of it
"""

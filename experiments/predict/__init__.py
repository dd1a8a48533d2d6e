"""Plans that were run, their predictions, and how far off these are: ``schedsearch predict``.

- `options`; `measured_folder`: a folder of profiles, links and plans with their measurements
- `blocking_order`: 1F1B where transfers occupy both of their ends
- `run_table`: tables of runs by model, GPUs and degrees; `run_prediction`: time and memory of each
- `stage_memory`: tensors of a run's fullest stage
- `recipe_table`: layouts that others publish
- `board`: figures of predicted runs: errors by table, pairs in the measured order, our choice beside the best
- `prediction`: time and memory of each plan
- `board_page`: the board as a page, a figure and a printed table
- `errors`: a prediction beside its measurement
- `task`: all of it
"""

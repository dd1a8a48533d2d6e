"""Plans that were run, their predictions, and how far off these are: ``schedsearch predict``.

- `options`; `runs`: what a run is, and forms of others' tables; `run_table`: folders of tables of runs
- `modelled_run`: a run under a layout; `run_prediction`: its time and memory; `calibration`: factors by runs
- `stage_memory`: tensors of a run's fullest stage
- `board`: figures of predicted runs: errors by table, pairs in the measured order, our choice beside the best
- `measured_folder`: plans of a folder of profiles and links, measured and predicted
- `blocking_order`: 1F1B where transfers occupy both of their ends
- `board_page`: the board as a page, a figure and a printed table
- `task`: all of it
"""

"""Plans that were run, their predictions, and how far off these are: ``schedsearch predict``.

- `options`; `runs`: what a run is, and forms of others' tables; `run_table`: folders of them, models
- `modelled_run`: a run under a layout, and factors by measured runs; `run_prediction`: its time and memory
- `board`: figures of predicted runs: errors by table, pairs in the measured order, our choice beside the best
- `measured_folder`: plans of a folder of profiles and links, measured and predicted by 1F1B where transfers
  occupy both of their ends
- `task`: all of it, and the board as a page, a figure and a printed table
"""

"""Measured runs, their predictions, and how far off these are: ``schedsearch predict``.

- `options`; `run_table`: tables of runs by model, GPUs and degrees
- `run_prediction`: time and memory of each; `errors`: how far off they are
- `task`: all of it
"""

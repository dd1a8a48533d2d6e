"""From the command line to typed options; knows nothing of what is done with them.

- `command`: a Hydra command whose errors are one line; `run_record`: how a run, or a sweep of them, ended
- `composing`: configs that cannot be composed, in one line, and in a sweep as a row
- `records`: every option, declared once; `commands`: which command has which, and what Hydra is told;
  `option_list`: what help and docs say of them
- `options`: the checked options of a config; `plans`, `data_parallel`: those that describe a placement
- `run_options`, `planned_model`: those of a run, and the model of a plan
- `machine`: what a measurement depends on
- `wrapped`: the log as wide as the terminal
"""

"""From a schedule and its clocks to scripts, devices and measurements: ``schedsearch run``.

- `options`, checked where they are declared; `run_options`: the model that is run, also of a plan
- `scripts`: generated, proved, run in virtual time
- `measured_run`: started, followed, compared with the unpipelined model, traced beside its plan, reported
- `beside`: usual schedules at the same costs; `resumed`: going on with a run that stopped
- `task`: all of it
"""

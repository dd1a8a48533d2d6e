"""Programs as Python scripts, one for each device, and such scripts read again.

It does not know how a script's calls are carried out. Read `job` (``job.json``, shared by all scripts),
`header` (a script's docstring), `clock_text` (the clocks of its calls), `iteration_text` (its calls and
loops), `codegen` (all of it), then `script`: the only reader of scripts.
"""

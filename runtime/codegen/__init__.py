"""Programs as Python scripts, one for each device, and such scripts read again.

It does not know how a script's calls are carried out. Read `job` (what the scripts share: ``job.json``),
`header` (what a script says at its top), `clock_text` (the clocks of its calls, with `literals`),
`iteration_text` (its calls and loops), `codegen` (all of it), then `script`: the only reader of scripts.
"""

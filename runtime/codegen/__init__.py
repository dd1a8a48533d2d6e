"""Programs as Python scripts, one for each device, and the reader of these scripts.

It does not know how a script's calls are carried out. Read `job` (``job.json``, shared by all scripts),
`iteration_text` (a script's calls, clocks and loops), `codegen` (all of a script), `script` (reads scripts).
"""

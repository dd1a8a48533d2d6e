"""Programs as Python scripts, one for each device, and such scripts read again.

It does not know how a script's calls are carried out. Read `codegen` (the scripts), `iteration_text` (their
calls and loops), `literal` (their data), then `script`: the only reader of scripts.
"""

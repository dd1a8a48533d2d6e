"""Results compared with the model in one piece, and saved programs proved.

It does not know how a run was started. Read `reference` (the two references, and how far a run is from
them), `accumulation` (sums of gradients in the order of the devices), `extent` (how much of a run is
compared), then `saved_programs`: ``python -m
runtime.check``.
"""

"""Results compared with the model in one piece, and saved programs proved.

It does not know how a run was started. Read `reference` (the model in one piece), `replay` (the devices'
orders in one process), `comparison` (how far a run is from both, and how much of it is compared), then
`saved_programs`: ``python -m runtime.check``.
"""

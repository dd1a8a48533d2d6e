"""Results compared with the model in one piece.

It does not know how a run was started. Read `reference` (the model in one piece), `replay` (the devices'
orders in one process), then `comparison` (how far a run is from both, and how much of it is compared).
"""

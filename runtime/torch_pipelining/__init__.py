"""Schedules as tables of torch.distributed.pipelining and back, and the proof that such tables are safe.

It does not import torch. Read `table` (a row for each rank, a cell for each action), `streams` (what such
tables leave out: streams and modes), `csv` (from schedules and back), `lowering` (the messages of a table,
placed as torch does), then the proof: `check` (all of it), `computations` (each once, forward before
backward) and `waits` (whether ranks wait for each other in a cycle); and `receives` (those that hold up
collectives, and tables that receive late).
"""

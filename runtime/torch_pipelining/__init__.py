"""Schedules as tables of torch.distributed.pipelining and back, and the proof that tables are safe.

It does not import torch. Read `table` (a row for each rank, a cell for each action), `streams` (streams and
modes, which tables leave out), `csv` (from schedules and back, and a table as programs of ours), `receives`
(sends and receives, early or late), `waits` (what pending transfers hold up) and `check` (the proof, which is
ours of programs, with torch's own rules).
"""

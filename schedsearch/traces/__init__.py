"""Traces of training runs: readers of several tools' forms, all to one table of operations.

In the order in which to read:

- `table`: the table: an operation of a rank a row, with its stage, micro-batch, begin and end
- `texts`: text of files, packed or not
- `job_table`: the form of published production jobs, a table with a file of the job's degrees
- `primus`: pipeline data of Primus
- `megatron_log`: logs of Megatron-LM with timers
- `own_trace`: the trace of a run of ours
- `reading`: traces of any form, told apart by their content
- `measured_layers`: times of a model's layers, from a table or from measurements
"""

"""Traces of training runs: readers of several tools' forms, all to one table of operations.

In the order in which to read:

- `table`: the table: an operation of a rank a row, with its stage, micro-batch, begin and end
- `texts`: text of files, packed or not
- `job_table`: the form of published production jobs, a table with a file of the job's degrees
- `primus`: pipeline data of Primus
- `megatron_log`: logs of Megatron-LM with timers
- `labels`: operations by the labels of profilers' traces: stage, kind and micro-batch
- `labelled`: from labels, launches and kernels to operations, for all profilers
- `chrome`: traces of torch's profiler, in Chrome's JSON form
- `nsight`: traces of Nsight Systems, in the SQLite form that it exports
- `block_times`: times of the blocks of a run, from both
- `reading`: traces of any form, told apart by their content
- `measured_layers`: times of a model's layers, from a table or from measurements
"""

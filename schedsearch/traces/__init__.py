"""Traces of training runs: readers of several tools' forms, all to one table of operations.

In the order in which to read:

- `table`: the table: an operation of a rank a row, with its stage, micro-batch, begin and end
- `job_table`: the form of published production jobs, a table with a file of the job's degrees
"""

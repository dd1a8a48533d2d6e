"""Programs: the runs, sends and receives of each device, in order; made of schedules and proved safe.

It knows neither torch nor times. Read `tensor_flow` (which tensors blocks hand over, and which block is
whose backward), `data_parallel` (who has which share of them), `tensor_spec` (their shapes and types),
`instructions` (the programs), `lower` (a schedule as programs), `prefetch` (receives posted earlier),
`handover` and `deadlock` (the proof that blocks get their inputs, and that programs finish) with
`error_grid` (where they do not), `loops` (the rounds that repeat in a program, and programs of more or
fewer), `program_file` (``programs.json``) and `calls` (what a script asks for, recorded).
"""

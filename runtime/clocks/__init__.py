"""The clocks of GPUs: asked for without waiting, set by a process of their own, always given back.

It does not know schedules: plans and scripts say which clock when.

Read `nvml` (the driver), `controller` (the process that locks a clock), `clock` (asks it, or a helper),
`helper` (locks clocks for users who may not, on a Unix socket), `stream_clock` (asks where a GPU's work
stands), `gpu_clock` (all of these for torch's GPU), `periodic_clocks` (of a script with a loop); then how
long changes take: `latency`. The command is `runtime.clock`.
"""

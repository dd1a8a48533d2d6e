"""Runs in virtual time, without processes and GPUs.

It does not know what blocks compute.

Read `network` (programs whose messages take time), `streams` (what CUDA does with the work of several GPUs),
`nccl` (programs on both) and `virtual_gpu` (scripts whose clocks matter).
"""

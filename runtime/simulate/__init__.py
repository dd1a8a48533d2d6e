"""Runs in virtual time, without processes and GPUs.

It does not know what blocks compute.

Read `network` (programs whose messages take time) and `virtual_gpu` (scripts whose clocks matter).
"""

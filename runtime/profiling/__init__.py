"""Measurements of devices: costs of blocks by clock, and iterations drawn beside their plan.

It does not know how blocks are run; a device tells its observers.

Read `observer` (events of a device), `profiler` and `device_profiler` (costs of blocks), `records` and
`recorder` (what a device did when), `utilisation` (a table), `trace` (a picture), `process_memory` (memory of
a process), `rates` (what a machine reaches by shape).
"""

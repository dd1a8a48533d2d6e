"""Orders of the next iterations: another program for an iteration, without another process.

Read `offered` (a folder of programs, their proof, and how all devices go over to one) and `ahead` (the order
of the next batch, searched by a process of its own).
"""

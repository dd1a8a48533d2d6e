"""Orders of the next iterations: another program for an iteration, without another process.

- `offered`: a folder of programs, and what is looked at before one may run
- `ahead`, `searching`: the order of the next batch, searched by a process of its own
- `switching`: all devices agree on the program of each iteration
"""

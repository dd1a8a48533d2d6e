"""Orders of the next iterations: another program for an iteration, without another process.

`offered` has the folder of programs, their proof, and the switch of all devices to one.
"""

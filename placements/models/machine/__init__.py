"""Rates of one machine.

- `machine_rates`: shares of peaks by shape, bandwidths, and times of collectives; measured or assumed
- `machine_file`: the files that have them
"""

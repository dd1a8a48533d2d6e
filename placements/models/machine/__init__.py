"""Measured rates of one machine.

- `measured_rates`: shares of peaks by shape, bandwidths, and times of collectives
- `machine_file`: the files that have them
- `sheet_rates`: rates by operator from a data sheet, for layers with experts
"""

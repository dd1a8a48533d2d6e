"""The rules of a schedule as constraints, for CP-SAT and Z3: finite or periodic, with any orders free.

Knows neither what is asked nor how long a solver may take. A rule is written once, on variables that say
when a block starts and which of two comes first, into the model of any solver. A further one, as of blocks
with several modes or of devices with several streams, is one more function. The check of certificates
and Tessel's own search have their own encodings on purpose. In the order in which to read:

- `variables`: when each block starts, once or again every period.
- `cpsat_model`: the model of CP-SAT.
- `z3_model`: the model of Z3, in the same words.
- `memory_precedence`: what a device's memory says about the order of its blocks.
- `rules`: a function for each rule, and for limits of spans and latencies.
"""

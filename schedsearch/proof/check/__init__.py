"""Proofs of a search as data, and programs that check them: these share nothing with the search.

In the order in which to read:

- `refutation`: a period that no repetend has, by Z3.
- `states`: a minimum cycle ratio, and a device's memory at any time, state by state.
- `orders`: a makespan, by all orders of starts.
- `certificate`: a repetend, a bound on the period with its reasons, and the file form.
- `claims`: a certificate, claim by claim, and the bounds on makespan and span, which need no reasons.
"""

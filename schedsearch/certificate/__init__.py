"""Proofs of a search as data that can be checked without it.

Knows the search's answers, but nothing of how they were found. In the order in which to read:

- `certificate`: a repetend, a bound on the period, and the reasons for it.
- `file`: its file form.
- `recheck_z3`, `recheck_states`, `recheck_held`, `recheck_conflicts`, `recheck_makespan`: refutations,
  minimum cycle ratios, what devices hold and run at once, and bounds on the makespan, each shown once more
  by a program that shares nothing with the search.
- `check`: a certificate, claim by claim.
- `check_other_bounds`: the bounds on makespan and span, for which it gives no reasons.
"""

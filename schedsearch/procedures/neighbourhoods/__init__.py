"""Large-neighbourhood search (LNS): shorten a whole schedule, or prove that no schedule is shorter.

Knows nothing of periods and repetends. In the order in which to read:

- `neighbourhood`: blocks to be ordered anew, with release times and tails from the rest of the schedule.
- `model`: a neighbourhood as a CP-SAT model.
- `improvement`: the rounds of states, neighbourhoods and the whole, and the work of each.
"""

"""Large-neighbourhood search (LNS): shorten a whole schedule, or prove that none is shorter.

Knows nothing of periods and repetends. In the order in which to read:

- `neighbourhood`: blocks to be ordered anew, and what the rest of the schedule demands of them.
- `model`: a neighbourhood as a CP-SAT model.
- `improvement`: the rounds of states, neighbourhoods and the whole, and what each may spend.
"""

"""Ways to search, and the one orchestrator that gives each its share of counted work.

A procedure looks at what is known, a frozen record, and yields findings, of which the search makes the next
record; so a limit or a Ctrl-C between two of them loses nothing. Procedures know nothing of modes, streams
and slow streams, which the passes have taken away. In the order in which to read:

- `procedure`: what every procedure is, and when it runs.
- `beginnings`: schedules made by hand, in turns or by event simulation, and their steady states.
- `queries`: questions about all blocks at once, and the bound of the state-space search.
- `annealing`, `critical_swaps`: the best order that steps from one order to the next lead to, compiled.
- `modes`: modes first, and the orders of what is left by the other procedures.
- `neighbourhoods`: a whole schedule shortened, part by part or at once, with a bound.
- `registry`: all of them by name, and which of them a search uses.
- `period`, `whole`: their rounds for the period, and for the schedule after it.
- `orchestrator`: rounds of both until a proof, a limit or a Ctrl-C, and the answer.
- `alternatives`: other schedules of the same period.
"""

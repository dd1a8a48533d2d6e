"""Search procedures, and the orchestrator that gives each one a share of counted work.

A procedure reads the search's frozen record of knowledge and yields findings, of which the search makes the
next record; so a limit or a Ctrl-C between two findings loses nothing. Procedures know nothing of modes,
streams and slow streams, which the passes have removed. In the order in which to read:

- `procedure`: the base class: a name, the placements that it suits, and its share of work.
- `beginnings`: schedules made by hand, in turns or by event simulation, and their steady states.
- `queries`: questions about all blocks at once, and the bound of the state-space search.
- `annealing`, `critical_swaps`: the best order that steps from one order to the next lead to, compiled.
- `modes`: modes first, and then the orders, by the other procedures.
- `neighbourhoods`: a whole schedule shortened, part by part or at once, with a bound.
- `registry`: all of them by name, and which of them a search uses.
- `period`, `whole`: their rounds for the period, and for the schedule after it.
- `orchestrator`: rounds of both until a proof, a limit or a Ctrl-C, and the answer.
- `team_search`: the best answer of several workers.
- `alternatives`: other schedules of the same period.
"""

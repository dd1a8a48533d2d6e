"""The search for a repetend of least period, then for other objectives, then for the whole schedule.

Knows solvers only as functions that answer a query, and neither methods nor caches. Read `result` (what is
asked, told and answered), `serial` (one block after another), `known` (what is known of the repetends of one
size, and the next query), `bisection` (one objective made least), `sweep` (the period, size by size),
`finite_schedule` (later objectives, and the asked number of micro-batches), `search` (all of it);
`infeasible` (why there is none), `alternatives` (other schedules of the same period) and
`period_by_in_flight` (Tessel, Fig. 11).
"""

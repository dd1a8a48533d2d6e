"""The search for a repetend of least period, then for other objectives, then for the whole schedule.

Knows solvers only as functions that answer a query, and neither methods nor caches. In the order in which to
read:

- `result`: what a search is asked to make least, tells and answers.
- `progress`: bars on standard error that show how far a search is.
- `knowledge`: what is known of the repetends of one size, and the next query.
- `oracle`: the solver that is asked, with a count of the questions and of the work.
- `starting_point`: what a caller begins with, on the placement that is searched.
- `state`: what is known of the period of all sizes, as one frozen record.
- `strategies`: what finds repetends, by name, as objects whose findings make the next state.
- `rounds`: the search for the period, strategies in rounds of counted work.
- `finite_schedule`: the objectives after the period, and the asked number of micro-batches.
- `lowered`: a placement with its modes chosen and a device for each stream, and back.
- `finite_with_modes`: `finite_schedule` where blocks have modes or devices streams.
- `search`: all of these in turn.
- `shared_limits`: limits of several searches together.
- `alternatives`: other schedules of the same period.
"""

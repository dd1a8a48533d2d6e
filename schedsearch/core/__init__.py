"""The records of a search: its question, its knowledge while it runs, and its answer.

- `objective`: what can be made least, of a repetend or of a whole schedule.
- `answer`: schedule, bounds, why it ended, and what each procedure cost and brought.
- `problem`: the question, with its limits.
- `known`: all that is known so far, as one frozen record, of which each finding makes the next.
- `shared_limits`: the limits of a command that searches several times.
- `budget`: counted work, a solver to ask, and who is told.
- `team`: processes that search side by side and exchange findings between rounds.
- `progress`: bars on standard error.
"""

"""PipeDream's planners: which layers make a stage, and how many workers share it.

All decide by times and bytes that were measured or computed before. Sections, tables and figures are those
of Narayanan's dissertation (2021), whose second chapter is PipeDream. In the order in which to read:

- `profile_graph`: what each node of a model costs, the CSV file of it, and where such a graph can be cut
- `plan`: workers in levels, stages with their workers, what they cost, and their blocks on devices
- `planner`: the dynamic programme, the best plan, and the usual ones beside it
- `two_bw`: the planner of PipeDream-2BW
"""

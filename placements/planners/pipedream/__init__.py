"""PipeDream's planners: the layers of each stage, and the number of workers that share it.

All decide by times and bytes that were measured or computed before. Sections, tables and figures are those
of Narayanan's dissertation (2021), whose second chapter is PipeDream. In the order in which to read:

- `profile_graph`: the cost of each node of a model, its CSV file, and the cuts of the graph
- `plan`: workers in levels, stages with their workers and costs, and their blocks on devices
- `planner`: the dynamic programme, the best plan, and the usual ones beside it
- `two_bw`: the planner of PipeDream-2BW
"""

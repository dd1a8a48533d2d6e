"""PipeDream's planners: which layers make a stage, and how many workers share it.

All decide by times and bytes that were measured or computed before. Sections, tables and figures are those
of Narayanan's dissertation (2021), whose second chapter is PipeDream. In the order in which to read:

- `profile_graph`: what each node of a model costs, and the CSV file of it
- `computed_profile`: the same from the shapes of a convolutional network's layers
- `closed_sets`: where such a graph can be cut
- `topology`: workers in levels, and the links between them
- `plan`: stages with their workers, and what they cost
- `stage_tables`: the dynamic programme
- `planner`: the best plan, and the usual ones beside it
- `plan_placement`: a plan as blocks on devices
- `two_bw`: the planner of PipeDream-2BW
"""

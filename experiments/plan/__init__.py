"""Plans of a model on a cluster: ``schedsearch plan``.

- `options`: the question to all planners, and the kinds of planners with their own options
- `inputs`: model, cluster and costs of what is asked, computed or of a measured profile
- `strategies`: the default planner and Galvatron-BMW's, plans ranked by their schedules and written
- `pipedream`: a profile of nodes planned as PipeDream does
- `two_bw`: parallel pipelines of equal blocks planned as PipeDream-2BW does
- `task`, which asks the planner that is chosen
"""

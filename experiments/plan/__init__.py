"""Plans of a model on a cluster: ``schedsearch plan``.

- `options`
- `inputs`: model, cluster and costs, computed or of a measured profile
- `own_layouts`: layouts, all layers shared alike: the user's own beside the best, part by part
- `pipedream_plan`: a profile of nodes planned as PipeDream does, and written
- `two_bw_plan`: parallel pipelines of equal blocks planned as PipeDream-2BW does
- `task`: plans, ranked by their schedules, and written
"""

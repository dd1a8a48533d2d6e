"""Plans of a model on a cluster: ``schedsearch plan``.

- `options`
- `profiled_inputs`: model, cluster and costs of a measured profile; rates of a machine
- `layout_plan`: what is written and said of layouts, all layers shared alike
- `own_layouts`: layouts of the user's own beside the best, part by part
- `pipedream_plan`: a profile of nodes planned as PipeDream does, and written
- `two_bw_plan`: parallel pipelines of equal blocks planned as PipeDream-2BW does
- `task`: plans, ranked by their schedules, and written
"""

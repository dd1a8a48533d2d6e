"""Tables and figures of Tessel's paper.

- `published`: what the paper prints of them
- `options`: what options are checked for
- `model_sizes`: Table III
- `bubble_rates`: Table II
- `drawn_schedules`: Fig. 8
- `search_times`: Fig. 3, 9 and 10
- `bubble_sweeps`: Fig. 11 and 12
- `items`: all of them
"""

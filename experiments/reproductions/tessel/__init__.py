"""Tables and figures of Tessel's paper (Lin et al., 2024).

- `published`: what the paper prints of them
- `options`: what options are checked for
- `model_sizes`: Table III
- `bubble_rates`: Table II
- `drawn_schedules`: Fig. 8
- `search_times`: Fig. 3, 9 and 10
- `bubble_sweeps`: Fig. 11 and 12
- `large_vocabulary`: models in a V-shape, and with the vocabulary on all GPUs
- `vocabulary_item`: Fig. 13 and 14, made of them
- `items`: all of them
"""

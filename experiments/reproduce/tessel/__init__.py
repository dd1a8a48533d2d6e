"""Tessel's tables and figures (Lin et al., 2024).

- `published`: what the paper prints of them
- `model_sizes`: Table III
- `bubble_rates`: Table II
- `drawn_schedules`: Fig. 8
- `search_times`: Fig. 3, 9 and 10
- `bubble_sweeps`: Fig. 11 and 12
- `vocabulary_imbalance`: Fig. 2
- `large_vocabulary`: models in a V-shape, and with the vocabulary on all GPUs
- `vocabulary_item`: Fig. 13 and 14, made of them
- `run_times`: Fig. 16 and 17, likewise
- `throughput`: Fig. 13 and 14 on the paper's GPUs, with 1F1B+ and Chimera
- `flava_inference`: Fig. 15
- `items`: all items
"""

"""Tessel's tables and figures (Lin et al., 2024).

- `published`: models and placements of its evaluation
- `bubble_rates`: Table II
- `drawn_schedules`: Fig. 8
- `search_times`: Fig. 9 and 10
- `bubble_sweeps`: Fig. 11 and 12
- `vocabulary_plans`: plans of models with large vocabularies, in a V-shape and with it on all GPUs
- `throughput`: Fig. 13 and 14, with 1F1B+ and Chimera
- `flava_inference`: Fig. 15
- `run_times`: Fig. 16 and 17
"""

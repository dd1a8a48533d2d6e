"""Tessel's tables and figures (Lin et al., 2024).

- `large_vocabulary`: models in a V-shape, and with the vocabulary on all GPUs
- `vocabulary_item`: Fig. 13 and 14, made of them
- `items`: all items
"""

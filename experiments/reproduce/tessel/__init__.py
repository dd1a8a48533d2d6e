"""Tessel's tables and figures (Lin et al., 2024).

- `bubbles`: Table II, Fig. 11
- `search_times`: Fig. 9
- `large_vocabularies`: Fig. 13 and 14
"""

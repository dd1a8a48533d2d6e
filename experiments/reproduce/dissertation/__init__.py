"""Tables and figures of chapters 2 to 4 and 6 of Narayanan's dissertation (2021).

- `published`: what it prints of them
- `parameters_and_days`: Tables 4.1 and 4.2
- `configurations`: Table 2.2
- `bubbles`: Fig. 4.6, Sec. 4.3.2 and Table 7.1
- `timelines`: Fig. 2.3, 3.3, 4.3 and 4.4
- `throughput`: Fig. 4.8, 4.11, 4.13, 4.14 and 4.15
- `ways_of_running`: Fig. 4.10, 4.12 and 4.16 to 4.18
- `footprints`: Fig. 2.15 and 2.16
- `memory`: Fig. 3.7 and 3.11
- `spot_prices`: Fig. 6.5 and 6.6
- `items`: all of them
"""

"""Tables and figures of chapters 2 to 4 of Narayanan's dissertation (2021).

- `published`: what it prints of them
- `parameters_and_days`: Tables 4.1 and 4.2
- `configurations`: Table 2.2
- `bubbles`: Fig. 4.6, Sec. 4.3.2 and Table 7.1
- `timelines`: Fig. 2.3, 3.3, 4.3 and 4.4
- `throughput`: Fig. 4.8, 4.11, 4.13, 4.14 and 4.15
- `memory`: Fig. 3.7
- `items`: all of them

Throughputs and losses that were measured on GPUs are left out where no trend of them can be computed: Fig.
2.9 to 2.17, 3.5, 3.6, 3.8 to 3.12, 4.7, 4.10, 4.12 and 4.16 to 4.18.
"""

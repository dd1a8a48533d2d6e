"""Tables and figures of Perseus (Chung et al., 2024).

- `published`: what the paper prints of them
- `imbalance`: Tables 1 and 7
- `workloads`: its training jobs, with measured or modelled costs
- `authors_results`: files that the authors publish beside their profiles
- `savings`: Tables 3 and 4
- `emulation`: Table 6, Fig. 7 and 8
- `timelines`: Fig. 10
- `frontiers`: Fig. 9, 11 and 12
"""

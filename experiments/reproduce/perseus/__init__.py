"""Perseus's tables and figures (Chung et al., 2024).

- `divisions`: models in stages that are as alike as they can be, Tables 1 and 7
- `workloads`: models in stages on a GPU, their schedules, and measured or modelled costs
- `savings`: Tables 3, 4 and 6, and Fig. 8
"""

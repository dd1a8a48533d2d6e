"""Which strategy each layer of a stage has: searches on tables of costs, that know no model and no GPU.

- `deadline`: the time that a search may take
- `stage_problem`: the tables of a stage, a choice of options and what it holds at its peak
- `exact`: the cheapest choice that fits, and the least memory of any
- `bmw`: Galvatron-BMW's own search inside a stage and its division into stages, to compare with
"""

"""Which strategy each layer of a stage has: searches on tables of costs, that know no model and no GPU.

- `stage_problem`: the tables of a stage, a choice of options and what it holds at its peak
- `exact`: the cheapest choice that fits
- `bmw`: Galvatron-BMW's own search inside a stage and its division into stages, to compare with
"""

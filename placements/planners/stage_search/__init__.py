"""Which strategy each layer of a stage has, and which layers a stage: searches on tables of costs.

They know no model and no GPU. Files in the order in which to read them:

- `deadline`: the time that a search may take
- `stage_problem`: the tables of a stage, a choice of options and what it holds at its peak
- `exact`: the cheapest choice that fits, and the least memory of any
- `paper`: Galvatron-BMW's own search inside a stage, to compare with
- `division`: what stages cost together
- `exact_division`, `paper_division`: the best division of layers into stages, and Galvatron-BMW's
"""

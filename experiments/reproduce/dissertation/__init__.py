"""Tables and figures of chapters 2 and 6 of Narayanan's dissertation (2021).

- `configurations`: Table 2.2
- `spot_markets`: Fig. 6.5, savings of a job that chooses among spot prices
"""

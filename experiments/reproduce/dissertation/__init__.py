"""Tables and figures of chapters 2, 4 and 6 of Narayanan's dissertation (2021).

- `closed_forms`: parameters, shares of the peak, days and bubbles by the formulas of chapter 4
- `configurations`: Table 2.2
- `spot_markets`: Tables 6.1 to 6.3 and Fig. 6.5
"""

"""Tables and figures of chapters 2 to 4 and 6 of Narayanan's dissertation (2021).

- `published`: what it prints of them
- `figure`: what its figures have alike as items
- `closed_forms`: parameters, operations and days by eq. 4.2 to 4.4
- `parameters_and_days`: Tables 4.1 and 4.2
- `configurations`: Table 2.2
- `bubbles`: Fig. 4.6, Sec. 4.3.2 and Table 7.1, and the drawn schedules of Fig. 2.3, 3.3, 4.3 and 4.4
- `spot_markets`: Tables 6.1 to 6.3 and Fig. 6.1, 6.3 and 6.4
- `spot_prices`: Fig. 6.5 and 6.6
- `items`: all of them
"""

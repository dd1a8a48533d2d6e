"""One order of blocks that is good in many scenarios: times that vary, slow devices, slow links.

In the order in which to read:

- `scenarios`: conditions that differ from the placement's own times, and a bound for each
- `annealing`: the heat over counted work, for all annealing by compiled steps
- `drawn_orders`: a schedule's orders and the times of many draws as arrays
- `swaps`: steps in which two blocks of a device change places, tried on all draws at once, compiled
- `robust_search`: the search, with a table of each schedule in each scenario
"""

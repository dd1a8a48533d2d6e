"""One order of blocks that is good in many scenarios: times that vary, slow devices, slow links.

In the order in which to read:

- `scenarios`: conditions with names and weights, from a file or a list, and what no order beats in one
- `drawn_orders`: a schedule's orders with the times of many draws, as arrays
- `swaps`: blocks that change places on a device, tried on all draws at once
- `annealing`: such changes in rounds of counted work
- `robust_search`: the best order found, beside other schedules
"""

"""Prices of GPUs over time at several clouds, and the savings of a job that chooses among them and moves.

Spot prices change daily and differ among zones (dissertation, Sec. 6.3). In the order in which to read:

- `market`: offers, their prices over time, and the least price of each type of GPU
- `price_files`: prices and speeds from CSV files
- `conditions`: what the published study leaves out: restarts, moves, preemptions, unchanged prices
- `days`: the prices of each day, as a strategy sees them and as it is charged
- `strategies`: what is chosen and when, and what a job then costs
- `hindsight`: what no strategy can beat, even one that knows all prices ahead
- `reductions`: the strategies against the baseline, as means over start days
"""

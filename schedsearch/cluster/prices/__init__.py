"""Prices of GPUs over time at several clouds, and the savings of a job that chooses among them and moves.

Spot prices change daily and differ among zones (dissertation, Sec. 6.3). In the order in which to read:

- `market`: offers, their prices over time, and the least price of each type of GPU
- `price_files`: prices and speeds from CSV files
- `days`: the prices of each day, and what the published study leaves out: restarts, moves, preemptions
- `hindsight`: what no strategy can beat, even one that knows all prices ahead
- `study`: what is chosen and when, what a job then costs, and what that saves
"""

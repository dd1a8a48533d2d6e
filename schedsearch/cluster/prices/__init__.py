"""Prices of GPUs over time at several clouds, and the savings of a job that chooses among them and moves.

Spot prices change daily and differ among zones (dissertation, Sec. 6.3). In the order in which to read:

- `days`: offers and their prices on each day; restarts, moves and preemptions
- `price_files`: prices and speeds from CSV files
- `study`: strategies that choose offers, the cost of a job under each, and the savings
"""

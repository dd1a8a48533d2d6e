"""From a demand to an allocation: Gavel's policies and others (dissertation, Sec. 5.4 and 6.4).

In the order in which to read:

- `policy`: what a policy is
- `program`: the linear program that they share
- `fairness`: max-min fairness
- `energy`: least energy or cost with SLOs and fair shares
- `shifting`: the same while the price of energy changes
"""

"""What makes plans of real clocks, each by a name that its plans carry.

In the order in which to read:

- `rounding`: from relaxed times to modes, for many deadlines at once.
- `windows`: the best modes of one device within the time that the others leave.
- `fixing`: one device's clocks fixed, the rest relaxed again.
- `candidates`: all plans that were made, simulated, and the best of them.
- `splicing`: the best plans around a deadline, joined.
- `neighbourhood`: the best modes of some instances while the others keep theirs, as one program.
- `improving`: the plan furthest above its bound improved so, within counted work.
"""

"""Defaults of the layout search, in a file of their own, for code that only shows them."""

NUM_CHUNKS = (1, 2, 4)
"""Virtual stages of each device that are tried."""

WORK_LIMIT = 18.0
"""Units of work, of about a second each, for all numbers of chunks together."""

"""Defaults of the layout search, in a file of their own, for code that only shows them."""

NUM_CHUNKS = (1, 2, 4)
"""Numbers of virtual stages per device to try."""

WORK_LIMIT = 18.0
"""Units of work, of about a second each, for all numbers of chunks together."""

"""When each block runs, and how fast: search, bounds, validation and energy of pipeline schedules. Knows no torch."""

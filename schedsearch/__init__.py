"""When each block runs, and how fast: search, bounds, validation and energy of schedules. Knows no torch."""

"""Schedules on real devices: lowering, proof before launch, readable scripts, and what the scripts call."""

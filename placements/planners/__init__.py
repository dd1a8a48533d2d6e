"""Makers of placements: how layers are shared among GPUs, decided by a planner, as blocks on devices."""

"""Hydra configs; a package, so that they are found once installed."""

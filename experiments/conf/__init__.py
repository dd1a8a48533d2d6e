"""Hydra configs; a package, so that they are found once installed. `presets`: those of some commands only."""

"""Hydra configs; a package, so that they are found once installed. `presets`: for some commands only."""

"""Entry points: read a config, call the layers below, save what they return."""

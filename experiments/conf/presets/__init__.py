"""Groups of configs of some commands only, which their ``hydra.searchpath`` names.

For the others a name of such a group, as ``experiment``, is an option like any other.
"""

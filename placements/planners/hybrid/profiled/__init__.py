"""Costs of layers from measured profiles, in the form that planners use.

- `measured_costs`: the common part of both forms of profiles
- `measured_cluster`: GPUs by the names that a profile has for them
- `layer_profile_costs`: costs from times and memory of each layer (Sailor's form)
- `galvatron_costs`: costs from the profiles of Galvatron
"""

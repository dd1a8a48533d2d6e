"""Costs of layers by measured profiles, as a planner asks for it.

- `measured_costs`: what both forms of profiles have in common
- `measured_cluster`: GPUs by the names that a profile has for them
- `layer_profile_costs`: costs from times and memory of each layer (Sailor's form)
- `galvatron_costs`: costs from the profiles of Galvatron
"""

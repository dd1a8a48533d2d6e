"""Costs of layers by measured profiles, as a planner asks for it.

- `measured_cluster`: GPUs by the names that a profile has for them
- `measured_links`: what gathers and transfers take on the links of such a cluster
- `shared_states`: what parameters take with each stage of ZeRO
- `layer_profile_costs`: costs from times and memory of each layer (Sailor's form)
- `galvatron_costs`: costs from the profiles of Galvatron
"""

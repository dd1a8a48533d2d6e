"""Measurements of layers and links, the plans that were run on them, and these plans as placements.

The file forms are those of Sailor's artifact (SOSP 2025), and of Galvatron. In the order in which to read:

- `layer_profile`: time and memory of each layer of a model on one type of GPU
- `link_fit`: bandwidth between and within nodes
- `profile_folder`: a model on all types of GPU that it was measured on, with the links
- `galvatron_profile`: time and memory of equal layers and bandwidths, in files of Galvatron
- `plan_file`: stages, their replicas and the batch
- `measured_placement`: a plan as blocks on devices, with the transfers that occupy both of their ends
"""

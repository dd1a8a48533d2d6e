"""Placements: the devices, times and memory of each block of a model. Knows no solver and no torch.

Rooms and files in reading order; each imports only the ones above it:

    forms             input and output: YAML, JSON, CSV and options, each field declared once
    block             a piece of one micro-batch's work: its devices, stream, time and memory
    modes             ways to run linked blocks, of which a search chooses
    streams           streams of a device that slow each other down
    spec              the blocks of one micro-batch, their devices, times and memory
    pieces            pieces of a model as blocks: forwards, backwards in reverse, optimizers
    profiles          costs of blocks at each clock
    copies            copies of devices, of which each micro-batch takes one
    placement_file    the file form of a placement
    hardware          a kind of GPU: clocks, power, link
    gpus              GPUs by name
    cluster           nodes of GPUs, their links, and times of collectives
    measured          measured layers and links, and plans that were run with them
    models            costs of the layers of models
    planners          plans of layers over GPUs, and their placements
    trainers          layouts and plans in the terms of training systems, written and read
    stages            a model as a chain of stages in ms and MiB, cut into other pieces, on devices
    slices            sequences cut into slices, one after the other through the pipeline
    shapes            V, X, M, NN and K (Tessel), wave and loop
"""

from placements.block import Block, Kind, PlacementError
from placements.profiles.operating_point import OperatingPoint, ProfileError
from placements.profiles.profile import BlockingPower, Profile
from placements.spec import Placement

__all__ = [
    "Block",
    "BlockingPower",
    "Kind",
    "OperatingPoint",
    "Placement",
    "PlacementError",
    "Profile",
    "ProfileError",
]

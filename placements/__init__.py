"""Placements say what runs where: their shapes, and what their blocks cost. Knows no solver and no torch.

Rooms and files in the order in which to read them; each imports only those above it:

    forms             what people write: YAML, JSON, CSV and options, each field declared once
    files             files that are whole or absent, and rows as CSV text
    meaning           fields of records declared once: unit, range and meaning
    plain_data        plain data read field by field, with errors in one line
    tables            tables in CSV, of which all files are read alike
    block             a piece of one micro-batch's work: its devices, stream, time and memory
    modes             ways to run linked blocks, of which a search chooses
    streams           streams of a device that slow each other down
    spec              the blocks of one micro-batch, the devices they run on, and what they need
    pieces            pieces of a model as blocks: forwards, backwards in reverse, optimizers
    profiles          costs of blocks at each clock
    copies            copies of devices, of which each micro-batch takes one
    placement_file    the file form of a placement
    hardware          what a GPU is: clocks, power, link
    gpus              GPUs by name
    cluster           nodes of GPUs, their links, and what collectives take
    measured          measured layers and links, and plans that were run with them
    models            what the layers of models cost
    planners          placements from what a planner decided
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

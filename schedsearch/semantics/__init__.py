"""Versions of weights: which one a block reads and which one it helps to make, with and without a flush.

It knows neither torch nor how a schedule was found. In the order in which to read:

    versions   the versions each block reads and makes in one of four modes, and how many a device holds
    check      the rules of the modes, checked without knowing how versions were found
"""

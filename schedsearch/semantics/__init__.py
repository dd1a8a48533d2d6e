"""Versions of weights: which a block reads, and which it helps to make, with a flush and without.

It knows neither torch nor how a schedule was found. In the order in which to read:

    versions   what each block reads and makes, in one of four modes, and how many versions a device holds
    check      the rules of the modes, checked without knowing how versions were found
"""

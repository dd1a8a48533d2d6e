"""Schedules for the playground of the docs, searched once and kept: ``python -m experiments.playground``.

- `presets`: shapes with the times of their blocks, as options of a command line
- `orders`: the orders of a schedule's devices as short text
- `problems`: what is searched, and what is kept of it
- `page_data`: the file that the page loads
"""

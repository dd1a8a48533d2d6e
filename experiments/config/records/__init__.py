"""The options of every command, each declared once: its name, type, default and meaning.

`experiments.config.commands` makes Hydra's configs of them, and `experiments.config.option_list` what help
and docs say. A record is of a command, whose groups are records too. In the order in which to read:

- `search`: searches, profiles, `schedsearch search`, `compare` and `check`
- `energy`: clocks, `schedsearch frontier`
- `runtime`: runs and measuring, `schedsearch run` and `profile`
- `placement`: the kinds of placements
- `plan`: planning, `schedsearch plan` and `predict`
- `cluster`: many jobs and prices
- `figures`: figures of papers
"""

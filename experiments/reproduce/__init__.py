"""Published tables and figures made again, with the published values: ``schedsearch reproduce``.

- `options`: options of the command, and the module of each item
- `item`: a table or figure that can be made again, its options, cases and claims
- `rows`: look-ups, comparisons and drawings of rows
- `tessel`, `galvatron`, `perseus`, `dissertation`, `gavel`: the items of a paper
- `measured`: items of published measurements
- `ahead`: schedules of 2025 and 2026 beside searched ones
- `model_sizes`: tables of model sizes of several papers
- `catalogue`: all items by name, and what to download for them
- `run_item`: an item made case by case, each kept on the disk
- `item_result`: files and text of a made item
- `recorded`: rows as CSV, and the results that the project keeps, in ``results``
- `results_page`: the page of kept results
- `task`: an item, or all of them
"""

"""Published tables and figures made again, with the published values: ``schedsearch reproduce``.

- `options`: those of the command
- `item`: a table or figure that can be made again, and what is claimed of it
- `rows`: looked up, compared and drawn; `item_options`: what options of items are checked for
- `galvatron`, `tessel`, `perseus`, `dissertation`, `gavel`: the items of a paper
- `measured`: those of published measurements
- `schedules_by_hand`: all schedules by hand beside searched ones
- `catalogue`: all items by name
- `origins`: what to download for items that need data
- `kept_cases`: the rows that are made, in a file; `run_item`: an item made case by case
- `processes`: cases in several processes
- `item_files`: what is written and said of it
- `recorded`: the results that the project keeps, in ``results``; `results_page`: the page of them
- `task`: an item, or all of them
"""

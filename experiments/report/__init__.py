"""Results of commands: tables, facts, files, and HTML pages with the drawings in them.

- `result`: everything that a command has found, written and printed by one frame
- `html_report`: the page, with its scripts, which are in the folder ``browser``
- `page_data`: schedules, plans and progress as plain arrays; `drawings`: their figures, which scripts fill
"""

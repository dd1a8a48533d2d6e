"""The reports of runs, searches, frontiers and comparisons, one HTML page each. They compute nothing.

- `program`: a page's scripts, which are in the folder ``browser``; `html_report`: the page
- `page_data`: schedules, plans and progress as plain arrays; `drawings`: their figures, which scripts fill
- `pictures`: timelines, memory and frontier as files
- `report`, `comparison_report`, `cluster_report`: which facts are on a page
"""

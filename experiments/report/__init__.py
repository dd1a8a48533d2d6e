"""HTML pages and the drawings in them; what is on a page says the room of its subject.

- `program`: a page's scripts, which are in the folder ``browser``; `html_report`: the page
- `page_data`: schedules, plans and progress as plain arrays; `drawings`: their figures, which scripts fill
"""

"""The report of a run: facts and pictures on one HTML page. It computes nothing that it shows.

- `html_report`: the page; `pictures`: timelines, memory and frontier; `report`: which facts are on it
"""

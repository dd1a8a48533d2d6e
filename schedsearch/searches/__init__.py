"""The searches by name, with one question and one answer, and its file form.

In the order in which to read:

- `methods`: what is asked, and what answers it
- `search_file`: the file form of a result, without its schedule
"""

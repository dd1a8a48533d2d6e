"""The searches by name, with one question and one answer, kept on disk and as files.

In the order in which to read:

- `methods`: what is asked, and what answers it
- `cache`: results kept on disk
- `search_file`: the file form of a result, without its schedule
"""

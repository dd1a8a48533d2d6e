"""The entry of all searches, and the file form of an answer.

In the order in which to read:

- `search`: one question, the methods by name, one answer
- `certificate`: the proof of an answer, as data that is checked without the search
- `search_file`: the file form of a result, without its schedule
"""

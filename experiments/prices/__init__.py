"""The saving of a job that moves among spot prices: ``schedsearch prices``.

- `options`
- `drawings`: figures like those of the dissertation's chapter 6
- `task`: all of it, its CSV files and a table for people
"""

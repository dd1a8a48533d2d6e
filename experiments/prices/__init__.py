"""The saving of a job that moves among spot prices: ``schedsearch prices``.

- `options`
- `tables`: CSV files and a table for people
- `drawings`: figures like those of the dissertation's chapter 6
- `task`: all of it
"""

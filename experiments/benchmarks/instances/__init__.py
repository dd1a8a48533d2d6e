"""Data set of problems with the best answers known; `check` checks it without the packages of this project.

README.md says what is in it, SCHEMA.md the form of its files.
"""

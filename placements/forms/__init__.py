"""Forms of options and files in YAML, JSON and CSV, with each field declared once.

- `meaning`: fields of records: unit, range and meaning.
- `texts`: files that are whole or absent; YAML, JSON and tables as text.
- `reading`: plain data as records, with errors in one line.
- `tables`: tables in CSV, of which all files are read alike.
"""

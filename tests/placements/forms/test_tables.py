"""CSV tables of people and programs are read alike; an unreadable table is one line."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Annotated, NamedTuple

import pytest
from one_line_errors import raises_line

from placements.forms.meaning import Meaning
from placements.forms.tables import csv_header, csv_records


class Layer(NamedTuple):
    name: str
    number: Annotated[int, Meaning("how many", min=1)]
    time_ms: Annotated[float, Meaning("time", "ms", min=0)]
    kept: Annotated[bool, Meaning("whether it is kept")] = False
    sizes: Annotated[tuple[int, ...], Meaning("sizes", min=0)] = ()


HEAD = "name,number,time_ms"
ROWS = [Layer("a", 2, 0.5), Layer("b, c", 10, 3.0)]


@pytest.mark.parametrize(
    "text",
    [
        f'{HEAD}\na,2,0.5\n"b, c",10,3\n',
        f'\ufeff{HEAD}\r\na,2.0,5e-1\r\n"b, c",1e1,3\r\n',
        f'{HEAD}\ra,2,.5\r"b, c",10,3.'.replace("name", " Name "),
        '"name" ,"number","time_ms"\n"a" , "2","0.5"\n   \n,,\n"b, c",+10,"3.0"\n\n',
        f'{HEAD},,\na,2,0.5,,\n"b, c",10,3\n , ,\n',
        "time_ms,NUMBER,name\n0.5,2,a\n3,10,'b, c'\n".replace("'", '"'),
        "name;number;time_ms\na;2;0.5\nb, c;10;3\n",
        "name\tnumber\ttime_ms\na\t2\t0.5\nb, c\t10\t3\n",
    ],
)
def test_tables_as_people_and_programs_write_them(tmp_path: Path, text: str) -> None:
    assert [row for _, row in csv_records(text, "layer", ValueError, Layer)] == ROWS
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert [row for _, row in csv_records(tmp_path / "t.csv.gz", "layer", ValueError, Layer)] == ROWS
    assert {"name", "number"} <= {column.lower() for column in csv_header(tmp_path / "t.csv.gz", ValueError)}
    (tmp_path / "t.csv.gz").write_bytes(text.encode())
    assert [row for _, row in csv_records(tmp_path / "t.csv.gz", "layer", ValueError, Layer)] == ROWS


def test_other_types_of_cells() -> None:
    table = f"{HEAD},kept,sizes\na,2,0.5,TRUE,1 | 2.0\nb,9007199254740993,1,,\n"
    rows = [row for _, row in csv_records(table, "layer", ValueError, Layer)]
    assert rows == [Layer("a", 2, 0.5, True, (1, 2)), Layer("b", 9007199254740993, 1.0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; give a header, and a row for each layer"),
        (",,,\n \n", "is empty; give a header"),
        (f"{HEAD}\n,,\n", "has no rows below the header; give one for each layer"),
        ("name,number\na,2\n", f"line 1: lacks the column 'time_ms'; the columns are {HEAD},kept,sizes"),
        (f"{HEAD},colour\na,2,1,x\n", "line 1: has an unknown column 'colour'; the columns are"),
        (f"{HEAD},Name\na,2,1,x\n", "line 1: has the column 'name' twice; keep one"),
        (f"{HEAD}\n\na,2\n", "line 3: has 2 cells for 3 columns; give one each, in quotes where"),
        (f"{HEAD}\na,2, \n", "line 2, column time_ms: is empty; fill the cell or remove the row"),
        (f"{HEAD}\na,1.5,1\n", "line 2, column number: '1.5' is not a whole number of 1 or more; give one"),
        (f"{HEAD}\na,2,1e999\n", "line 2, column time_ms: '1e999' is not a number of 0 or more; give"),
        (f"{HEAD}\na,2,nan\n", "line 2, column time_ms: 'nan' is not a number of 0 or more; give it in ms"),
        (f"{HEAD}\na,2,1_0\n", "line 2, column time_ms: '1_0' is not a number of 0 or more; give it in ms"),
        (f'{HEAD}\na,2,"1,5"\n', "line 2, column time_ms: '1,5' is not a number of 0 or more; give it in ms"),
        (f"{HEAD},kept\na,2,1,yes\n", "line 2, column kept: 'yes' is not true or false; give one of them"),
        (f'{HEAD}\na,2,1\n"b,2,1\n', "line 3: is not CSV (unexpected end of data); close its quotes, and"),
        (f"{HEAD}\né,2,1\n", "line 2: is not UTF-8 text; save the file as comma-separated UTF-8"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode("latin-1"))
    with raises_line(ValueError, f"{path}: {message}"):
        csv_records(path, "layer", ValueError, Layer)

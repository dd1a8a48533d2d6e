"""Figures that Galvatron-BMW's paper publishes: throughputs and batches of three rows of Tables II and III.

It knows no constants and computes nothing.
"""

from __future__ import annotations

from typing import NamedTuple


class PublishedCell(NamedTuple):
    """One cell of a table.

    Attributes:
        model: As in the paper (Table I).
        memory_gb: Of a GPU.
        method: Galvatron, or its search with two kinds of parallelism only.
        batch: Samples of an iteration; None where nothing fits.
        samples_per_s: As measured in the paper; None where nothing fits.
    """

    model: str
    memory_gb: int
    method: str
    batch: int | None
    samples_per_s: float | None


TABLE_2 = """
GB method BERT-Huge-32 BERT-Huge-48 ViT-Huge-32 ViT-Huge-48 T5-Large-32 T5-Large-48 Swin-Huge-32 Swin-Huge-48
 8 Galvatron     8.16/8          -   36.58/56   20.93/24     9.37/8          -   31.33/48   21.64/32
 8 DP+TP              -          -    29.4/32   15.76/16          -          -   26.18/24   14.76/16
 8 DP+PP              -          -   31.79/48   20.93/24     9.37/8          -   27.18/40   17.71/24
12 Galvatron   11.39/16      6.2/8   50.69/72   26.63/72   14.49/16     6.83/8   41.69/64   25.42/64
12 DP+TP         8.92/8     5.35/8   42.21/64    17.2/32     9.53/8          -   37.26/56   20.18/32
12 DP+PP         9.22/8      6.2/8   50.69/72   24.01/56   11.95/16     6.83/8   35.87/56   21.69/48
16 Galvatron   15.05/24    7.46/16  63.25/160  35.74/104    16.5/24    8.36/16  54.06/136   29.21/72
16 DP+TP       12.59/16     6.19/8   46.02/88   23.97/48   14.52/16     6.84/8   44.65/80   26.51/48
16 DP+PP          13/16      6.2/8  54.05/120   28.01/56   14.64/16     6.83/8   44.15/96   25.82/56
20 Galvatron   18.21/40    8.95/24   70.5/152   41.2/136   18.64/32   10.33/16  60.06/144  37.75/120
20 DP+TP       14.65/24    8.05/16  61.54/112   28.69/72   15.35/24     6.84/8  54.87/104   30.59/72
20 DP+PP       15.52/24    8.11/16  61.54/112   34.88/96   17.27/24   10.33/16  50.19/136   31.62/80
"""
"""Eight RTX TITAN (paper, Table II): samples per second/batch, or - where nothing fits."""

TABLE_3 = """
GB method BERT-Huge-32 BERT-Huge-48 ViT-Huge-32 ViT-Huge-48
 8 Galvatron   15.24/16    8.43/16  76.74/128   38.32/88
 8 DP+TP              -          -   54.43/64   24.56/32
 8 DP+PP       13.91/16     5.88/8  68.56/128   35.02/72
16 Galvatron   32.67/64   14.74/40 131.15/320  72.74/208
16 DP+TP       23.01/32    10.5/16  99.22/160   49.82/96
16 DP+PP       23.73/40   13.12/40 115.88/224  61.38/208
"""
"""Sixteen RTX TITAN (paper, Table III, low-performance cluster), likewise."""


def read_cells(table: str) -> list[PublishedCell]:
    """Return the cells of a table, row by row."""
    head, *rows = (line.split() for line in table.strip().splitlines())
    return [
        _read_cell(model, int(memory_gb), method, text)
        for memory_gb, method, *cells in rows
        for model, text in zip(head[2:], cells, strict=True)
    ]


def _read_cell(model: str, memory_gb: int, method: str, text: str) -> PublishedCell:
    if text == "-":
        return PublishedCell(model, memory_gb, method, None, None)
    samples_per_s, batch = text.split("/")
    return PublishedCell(model, memory_gb, method, int(batch), float(samples_per_s))

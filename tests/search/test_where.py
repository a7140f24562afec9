"""Filters select the rows that SQL selects, and errors are one line."""

import sqlite3

import numpy as np
import pyarrow as pa
import pytest

from unweave.errors import UnweaveError
from unweave.search.where import matching_rows

ROWS = [
    ("a/1.jpg", 0, "cat"), ("a/2.png", 1, "dog"), ("b/1.jpg", None, None), ("b/it's.jpg", 2, "tom cat"),
    ("c_d/10%.jpg", 7, None), ("cxd/10.jpg", 1, "dog"), (r"d\xff.jpg", 3, "cow"), (r"d\%.jpg", 3, "cow"),
]  # fmt: skip


@pytest.fixture(scope="module")
def tables():
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA case_sensitive_like = true")
    database.execute("CREATE TABLE t (row, path TEXT, label INT, class_name TEXT)")
    database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", [(i, *row) for i, row in enumerate(ROWS)])
    columns = zip(*ROWS, strict=True)
    return database, pa.table(dict(zip(("path", "label", "class_name"), map(list, columns), strict=True)))


@pytest.mark.parametrize(
    "where",
    [
        "label = 1", "label != 1", "label <> 1", "label >= 1 and label < 7", "not label = 1", "label in (0, 2, 9)",
        "label not in (0, 2)", "label is null", "label is not null and class_name is null", "path like 'a/%'",
        "path not like '%.jpg'", "path like 'c_d/%'", "class_name = 'cat' or class_name = 'dog' and label < 1",
        "(class_name = 'cat' or class_name = 'dog') and label < 1", "path = 'b/it''s.jpg'",
        "NOT (label = 1 OR label = 0)",
        "not not class_name like '%cat'", "label > -1", "label < 1.5", "path > 'b'", "class_name in ('dog')",
        "not (label = 1 and class_name = 'dog')",
        r"path like 'd\xff%'", r"path like '%\%'", r"path like 'd\%'", r"path like '%\_jpg'", "path like 'b/i_''s.j_g'",
        "path like '%.jp'", "path like '(a|b)%'", "label < 99999999999999999999999", "label = 99999999999999999999999",
    ],
)  # fmt: skip
def test_rows_are_those_of_sqlite(tables, where):
    database, table = tables
    expected = {row for (row,) in database.execute(f"SELECT row FROM t WHERE {where}")}
    assert {i for i, chosen in enumerate(matching_rows(table, where)) if chosen} == expected


def test_a_text_compared_with_the_label_is_the_name_of_a_class(tables):
    _, table = tables
    for where in ("label = 'dog'", "label in ('dog')", "label like 'd%'"):
        assert matching_rows(table, where).tolist() == [False, True, False, False, False, True, False, False]


def test_bytes_that_are_not_unicode_match_names_as_the_index_has_them(tables):
    byte = b"\xff".decode("utf-8", "surrogateescape")
    for where in (f"path = 'd{byte}.jpg'", f"path like 'd{byte}%'", f"path in ('x', 'd{byte}.jpg')"):
        assert np.flatnonzero(matching_rows(tables[1], where)).tolist() == [6]


@pytest.mark.parametrize(
    "where",
    [
        "path = '\ud800'",
        "", "label", "label =", "label = cat", "label == 1", "size = 3", "path = 3", "label = 1 label = 2",
        "(label = 1",
        "label in 1", "label in (1", "label not = 1", "label = 'x", "label like 3", "label = 1;", "is null",
        "__import__('os')", "label = 1 and", "label is 3", "\n label = \n ~",
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_one_line(tables, where):
    with pytest.raises(UnweaveError, match="`where`") as error:
        matching_rows(tables[1], where)
    assert "\n" not in str(error.value)

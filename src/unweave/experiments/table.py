"""``table.json``: the rows of an experiment, kept as they come, so that an interrupted run goes on where it was."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unweave.errors import UnweaveError
from unweave.experiments.provenance import provenance

Row = dict[str, Any]


class Table:
    """Rows that ``key``'s columns tell apart."""

    def __init__(self, path: Path, key: Sequence[str]) -> None:
        self.path, self.key = path, tuple(key)
        self.rows: list[Row] = []
        self._before, self._started = 0.0, time.perf_counter()
        if path.exists():
            try:
                stored = json.loads(path.read_text())
                self.rows, self._before = stored["rows"], stored["seconds"]
                [self.name(row) for row in self.rows]
            except (json.JSONDecodeError, KeyError, TypeError):
                raise UnweaveError(f"{path} is no table of this experiment; choose another folder") from None

    def name(self, row: Row) -> tuple[Any, ...]:
        """What tells this row from the others."""
        return tuple(row[column] for column in self.key)

    @property
    def done(self) -> set[tuple[Any, ...]]:
        """The names of the rows there are."""
        return {self.name(row) for row in self.rows}

    def add(self, rows: list[Row]) -> None:
        """Adds rows, in place of those of the same name, and writes the file."""
        new = {self.name(row) for row in rows}
        self.rows = [*(row for row in self.rows if self.name(row) not in new), *rows]
        seconds = round(self._before + time.perf_counter() - self._started, 1)
        head = {**provenance("scikit-learn", "scipy"), "seconds": seconds}
        lines = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in self.rows)
        text = json.dumps(head, indent=1, ensure_ascii=False)[:-2] + f',\n "rows": [\n{lines}\n ]\n}}\n'
        half = self.path.with_suffix(".part")
        half.write_text(text)
        os.replace(half, self.path)

    def provenance_lines(self) -> list[str]:
        """What ran where and for how long, as the file has it, for the end of a README."""
        head = json.loads(self.path.read_text())
        packages = ", ".join(f"{name} {version}" for name, version in head["versions"].items() if version != "absent")
        return [f"`{head['command']}` · {head['hardware']} · {head['seconds']:.0f} s · {packages}"]


def markdown(header: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    rows = [header, ["---"] * len(header), *body]
    return ["| " + " | ".join(row) + " |" for row in rows]

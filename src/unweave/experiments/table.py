"""``table.json``: the rows of an experiment, kept as they come, so that an interrupted run goes on where it was."""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from unweave.errors import UnweaveError
from unweave.experiments.provenance import provenance

Row = dict[str, Any]


class Table:
    """Rows that ``key``'s columns tell apart."""

    def __init__(self, path: Path, key: Sequence[str]) -> None:
        self.path, self.key = path, tuple(key)
        self._counted = time.perf_counter()
        self.rows, _ = self._read()

    def _read(self) -> tuple[list[Row], float]:
        """Rows and seconds of the file, if there is one."""
        if not self.path.exists():
            return [], 0.0
        try:
            stored = json.loads(self.path.read_text())
            rows, seconds = stored["rows"], stored["seconds"]
            [self.name(row) for row in rows]
        except (json.JSONDecodeError, KeyError, TypeError):
            raise UnweaveError(f"{self.path} is no table of this experiment; choose another folder") from None
        return rows, seconds

    def name(self, row: Row) -> tuple[Any, ...]:
        """What tells this row from the others."""
        return tuple(row[column] for column in self.key)

    @property
    def done(self) -> set[tuple[Any, ...]]:
        """The names of the rows there are."""
        return {self.name(row) for row in self.rows}

    def add(self, rows: list[Row]) -> None:
        """Adds rows, in place of those of the same name, and writes the file.

        What another process has written since is kept: several may fill one table, and their seconds add up.
        """
        with locked(self.path.parent):
            stored, before = self._read()
            new, now = {self.name(row) for row in rows}, time.perf_counter()
            self.rows = [*(row for row in stored if self.name(row) not in new), *rows]
            self._write(before + now - self._counted)
            self._counted = now

    def _write(self, seconds: float) -> None:
        head = {**provenance("scikit-learn", "scipy"), "seconds": round(seconds, 1)}
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


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Waits for its turn with a folder; where there are no such locks, goes on."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without them
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def markdown(header: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    rows = [header, ["---"] * len(header), *body]
    return ["| " + " | ".join(row) + " |" for row in rows]

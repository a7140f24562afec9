"""``table.json``: the rows of an experiment, kept as they come, so that an interrupted run goes on where it was."""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unweave.errors import UnweaveError
from unweave.experiments.provenance import provenance
from unweave.locks import locked

Row = dict[str, Any]


class Table:
    """Rows that ``key``'s columns tell apart."""

    def __init__(self, path: Path, key: Sequence[str]) -> None:
        self.path, self.key = path, tuple(key)
        self._counted = time.perf_counter()
        self.rows: list[Row] = self._read()["rows"]

    def _read(self) -> dict[str, Any]:
        """What the file holds, if there is one."""
        if not self.path.exists():
            return {"rows": [], "seconds": 0.0}
        try:
            stored = json.loads(self.path.read_text())
            [self.name(row) for row in stored["rows"]]
            stored["seconds"] + 0.0
        except (ValueError, KeyError, TypeError):
            raise UnweaveError(f"{self.path} is no table of this experiment; choose another folder") from None
        return stored

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
        ``command`` is the last that did, ``earlier_commands`` are the others.
        """
        with locked(self.path.parent):
            stored, now = self._read(), time.perf_counter()
            new = {self.name(row) for row in rows}
            self.rows = [*(row for row in stored["rows"] if self.name(row) not in new), *rows]
            self._write(stored, now - self._counted)
            self._counted = now

    @contextmanager
    def filled(self) -> Iterator[None]:
        """Around the work: where it is stopped, what was spent on the row that is not there yet counts too."""
        try:
            yield
        except KeyboardInterrupt:
            self.add([])
            raise

    def _write(self, stored: dict[str, Any], seconds: float) -> None:
        head = {**provenance("scikit-learn", "scipy"), "seconds": round(stored["seconds"] + seconds, 1)}
        commands = dict.fromkeys([*stored.get("earlier_commands", []), stored.get("command", head["command"])])
        if earlier := [command for command in commands if command != head["command"]]:
            head["earlier_commands"] = earlier
        lines = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in self.rows)
        text = json.dumps(head, indent=1, ensure_ascii=False)[:-2] + f',\n "rows": [\n{lines}\n ]\n}}\n'
        half = self.path.with_suffix(".part")
        half.write_text(text)
        os.replace(half, self.path)

    def provenance_lines(self) -> list[str]:
        """What ran where and for how long, as the file has it, for the end of a README."""
        head = json.loads(self.path.read_text())
        packages = ", ".join(f"{name} {version}" for name, version in head["versions"].items() if version != "absent")
        commands = ", ".join(f"`{command}`" for command in [*head.get("earlier_commands", []), head["command"]])
        return [f"{commands} · {head['hardware']} · {head['seconds']:.0f} s · {packages}"]


def markdown(header: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    rows = [header, ["---"] * len(header), *body]
    return ["| " + " | ".join(row) + " |" for row in rows]

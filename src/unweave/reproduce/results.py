"""``table.json``: the rows of an experiment, written as they are finished, so that an interrupted run can resume."""

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unweave import UnweaveError
from unweave.describe import describe
from unweave.files import locked, write_text
from unweave.provenance import provenance

Row = dict[str, Any]


class ResultsTable:
    """Rows identified by the columns in ``key``, with the provenance and settings of the commands that wrote them.

    ``config`` is the configuration of the experiment. Several processes may write to one table: rows of others are kept
    and their seconds added.
    """

    def __init__(self, path: Path, key: Sequence[str], config: Any = None) -> None:
        self.path, self.key, self.settings = path, tuple(key), describe(config)
        self._counted = time.perf_counter()
        self.rows: list[Row] = self._read()["rows"]

    def read_again(self) -> None:
        """Reads the rows that other processes have written since."""
        self.rows = self._read()["rows"]

    def _read(self) -> dict[str, Any]:
        """The contents of the file, if it exists."""
        if not self.path.exists():
            return {"rows": [], "seconds": 0.0}
        try:
            stored = json.loads(self.path.read_text())
            [self.name(row) for row in stored["rows"]]
            stored["seconds"] + 0.0
        except (ValueError, KeyError, TypeError):
            raise UnweaveError(f"{self.path} is not a table of this experiment; choose another `out`") from None
        return stored

    def name(self, row: Row) -> tuple[Any, ...]:
        """The values that identify a row."""
        return tuple(row[column] for column in self.key)

    @property
    def done(self) -> set[tuple[Any, ...]]:
        """The names of the finished rows."""
        return {self.name(row) for row in self.rows}

    def add(self, rows: list[Row]) -> None:
        """Writes rows, in place of those with the same name.

        ``command``, ``commit`` and ``settings`` are those of the last command; ``earlier`` lists the others.
        """
        with locked(self.path.parent):
            stored, now = self._read(), time.perf_counter()
            new = {self.name(row) for row in rows}
            self.rows = [*(row for row in stored["rows"] if self.name(row) not in new), *rows]
            self._write(stored, now - self._counted)
            self._counted = now

    def fill(self, wanted: Sequence[tuple[Any, ...]], make: Callable[..., Row]) -> None:
        """Makes the rows with these names that do not exist: ``make(*name, title)``, the title such as "2/5".

        Several processes may fill one table: a row that another one is making is left to it.
        """
        todo = [name for name in wanted if name not in self.done]
        with self.counting():
            for number, name in enumerate(todo, 1):
                with locked(self.lock(name), 0.0) as mine:
                    self.read_again()
                    if mine and name not in self.done:
                        self.add([make(*name, f"{number}/{len(todo)}")])
        self.read_again()

    def lock(self, name: tuple[Any, ...]) -> Path:
        """The file that a process locks while it makes the row of this name."""
        folder = self.path.parent / ".locks"
        folder.mkdir(exist_ok=True)
        return folder / "-".join(re.sub(r"\W+", "_", str(value)) for value in name)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Around the work: if it is interrupted, the seconds spent on an unfinished row are written too."""
        try:
            yield
        except KeyboardInterrupt:
            self.add([])
            raise

    def _write(self, stored: dict[str, Any], seconds: float) -> None:
        head = {
            **provenance("scikit-learn", "scipy"),
            "settings": self.settings,
            "seconds": round(stored["seconds"] + seconds, 1),
        }
        ours = {name: head[name] for name in ("command", "commit", "settings")}
        last = {name: stored[name] for name in ours if name in stored}
        if earlier := [entry for entry in [*stored.get("earlier", []), last] if entry and entry != ours]:
            head["earlier"] = [entry for i, entry in enumerate(earlier) if entry not in earlier[:i]]
        lines = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in self.rows)
        text = json.dumps(head, indent=1, ensure_ascii=False)[:-2] + f',\n "rows": [\n{lines}\n ]\n}}\n'
        write_text(self.path, text)

    def provenance_line(self) -> str:
        """What ran where and for how long, for the end of a README."""
        head = json.loads(self.path.read_text())
        packages = ", ".join(f"{name} {version}" for name, version in head["versions"].items() if version != "absent")
        earlier = [entry["command"] for entry in head.get("earlier", [])] or head.get("earlier_commands", [])
        commands = ", ".join(f"`{command}`" for command in dict.fromkeys([*earlier, head["command"]]))
        commit = f" · commit {head['commit'][:12]}" if "commit" in head else ""
        return f"{commands} · {head['hardware']} · {head['seconds']:.0f} s{commit} · {packages}"


def markdown(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table in Markdown.

    Examples:
        >>> print(markdown(["a", "b"], [["1", "2"]]))
        | a | b |
        | --- | --- |
        | 1 | 2 |
    """
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *body])

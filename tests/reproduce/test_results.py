import json
import multiprocessing

import pytest

from unweave.errors import UnweaveError
from unweave.files import locked
from unweave.reproduce.results import ResultsTable


def test_rows_are_kept_and_those_of_the_same_name_replaced(tmp_path):
    path = tmp_path / "table.json"
    ResultsTable(path, ("seed",)).add([{"seed": 0, "r2": 0.1}, {"seed": 1, "r2": 0.2}])
    again = ResultsTable(path, ("seed",))
    assert again.done == {(0,), (1,)}
    again.add([{"seed": 1, "r2": 0.3}])
    stored = json.loads(path.read_text())
    assert stored["rows"] == [{"seed": 0, "r2": 0.1}, {"seed": 1, "r2": 0.3}]
    assert {"command", "commit", "settings", "hardware", "versions", "seconds"} < set(stored)
    assert [p.name for p in tmp_path.iterdir()] == ["table.json"]


@pytest.mark.parametrize(
    "text", ["mine", "{}", '{"rows": [{"a": 1}], "seconds": 1}', "[]", '{"rows": [], "seconds": "1"}']
)
def test_a_file_that_is_no_such_table_is_refused_and_left_alone(tmp_path, text):
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(UnweaveError, match="choose another `out`"):
        ResultsTable(path, ("seed",))
    assert path.read_text() == text


def test_seconds_add_up_over_interruptions(tmp_path):
    path = tmp_path / "table.json"
    path.write_text('{"rows": [], "seconds": 100.0}')
    table = ResultsTable(path, ("seed",))
    table.add([])
    assert json.loads(path.read_text())["seconds"] >= 100


def test_what_was_spent_on_a_row_that_was_not_finished_counts(tmp_path, monkeypatch):
    clock = iter([0.0, 10.0, 17.0])
    monkeypatch.setattr("unweave.reproduce.results.time.perf_counter", lambda: next(clock))
    table = ResultsTable(tmp_path / "table.json", ("seed",))

    def work():
        with table.counting():
            table.add([{"seed": 0}])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    stored = json.loads((tmp_path / "table.json").read_text())
    assert (stored["seconds"], stored["rows"]) == (17.0, [{"seed": 0}])


def test_two_that_fill_one_table_keep_each_others_rows_and_add_their_seconds(tmp_path):
    path = tmp_path / "table.json"
    path.write_text('{"rows": [], "seconds": 100.0}')
    one, other = ResultsTable(path, ("seed",)), ResultsTable(path, ("seed",))
    one.add([{"seed": 0}])
    other.add([{"seed": 1}])
    one.add([{"seed": 2}])
    stored = json.loads(path.read_text())
    assert stored["rows"] == one.rows == [{"seed": 0}, {"seed": 1}, {"seed": 2}]
    assert 100 <= stored["seconds"] < 110


def test_every_command_that_filled_it_is_named(tmp_path, monkeypatch):
    path = tmp_path / "table.json"
    for seed in (0, 1, 1, 0, 2):
        monkeypatch.setattr("sys.argv", ["unweave", "--seed", str(seed)])
        ResultsTable(path, ("seed",)).add([{"seed": seed}])
    stored = json.loads(path.read_text())
    assert stored["command"] == "unweave --seed 2"
    assert sorted(entry["command"] for entry in stored["earlier"]) == ["unweave --seed 0", "unweave --seed 1"]
    line = ResultsTable(path, ("seed",)).provenance_line()
    assert all(f"`unweave --seed {seed}`" in line for seed in range(3))


def _fill(path, seed):
    table = ResultsTable(path, ("seed", "step"))
    for step in range(20):
        table.add([{"seed": seed, "step": step}])


def test_no_row_is_lost_where_processes_write_at_once(tmp_path):
    path = tmp_path / "table.json"
    processes = [multiprocessing.get_context("fork").Process(target=_fill, args=(path, seed)) for seed in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert len(json.loads(path.read_text())["rows"]) == 60


def test_settings_that_change_between_commands_are_kept_apart(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["unweave"])
    path = tmp_path / "table.json"
    for steps in (10, 10, 20):
        ResultsTable(path, ("seed",), {"steps": steps}).add([{"seed": steps}])
    stored = json.loads(path.read_text())
    assert stored["settings"] == {"steps": 20}
    assert [entry["settings"] for entry in stored["earlier"]] == [{"steps": 10}]


def test_a_command_names_no_folder_of_the_machine(monkeypatch):
    from unweave import provenance

    words = ["/usr/bin/unweave", "probe", "/home/me/run", "dtd=/data/dtd", "--out=/tmp/p.json", "a=b", "photos"]
    monkeypatch.setattr("sys.argv", words)
    assert provenance.command() == "unweave probe run dtd=dtd --out=p.json a=b photos"


def test_a_row_that_another_process_makes_is_left_to_it(tmp_path):
    path, made = tmp_path / "table.json", []

    def make(method, seed, title):
        made.append((method, seed))
        return {"method": method, "seed": seed}

    wanted = [("simclr", 0), ("simclr", 1), ("vicreg", 0)]
    table, other = ResultsTable(path, ("method", "seed")), ResultsTable(path, ("method", "seed"))
    with locked(other.lock(("simclr", 1))):
        table.fill(wanted, make)
    assert made == [("simclr", 0), ("vicreg", 0)]
    other.fill(wanted, make)  # what it was making, and not the rows written since it began
    assert made == [("simclr", 0), ("vicreg", 0), ("simclr", 1)]
    assert other.done == set(wanted)

"""The transfer study, end to end on small data sets in the official layouts."""

import json
import threading
import time
from dataclasses import replace

import pytest
import torch

import small_tasks
import unweave as uw
from processes import Child, torchrun_environment, unweave
from unweave.data import Subset
from unweave.data.tasks import TASKS
from unweave.files import locked
from unweave.reproduce.transfer import data as transfer_data
from unweave.reproduce.transfer import run as study
from unweave.reproduce.transfer import run_transfer, run_tuning, supervised, tuning
from unweave.reproduce.transfer import scores as scoring
from unweave.reproduce.transfer.data import TransferData
from unweave.reproduce.transfer.names import GROUPS, ORDER, group_averages
from unweave.reproduce.transfer.processes import Processes
from unweave.reproduce.transfer.settings import SUPERVISED, chosen_models, read_scale

pytestmark = pytest.mark.usefixtures("one_thread")
SPACES = ("content", "spatial", "appearance")
FT = "SimCLR + Ours-FT"
QUICK = {"scale": "paper", "quick": True, "device": "cpu"}


@pytest.fixture(scope="module")
def all_tasks(tmp_path_factory):
    data = tmp_path_factory.mktemp("all")
    small_tasks.write_tasks(data)
    small_tasks.write_pretraining(data / "imagenet")
    return data


@pytest.fixture(scope="module")
def few_tasks(tmp_path_factory):
    """Flowers and the three tasks of CUB."""
    data = tmp_path_factory.mktemp("few")
    small_tasks.write_tasks(data, ("cub", "flowers"))
    small_tasks.write_pretraining(data / "imagenet")
    (data / "tiny-imagenet").symlink_to("imagenet")
    return data


def read(out, name="table.json"):
    return json.loads((out / name).read_text())


def names(out):
    return sorted((row["model"], row["features"]) for row in read(out)["rows"])


def expected(*models):
    with_spaces = {model: ("h", "z", *(SPACES if "Ours" in model else ())) for model in models}
    return sorted((model, features) for model, all_features in with_spaces.items() for features in all_features)


class Counted:
    """A function that counts its calls and may raise in one of them."""

    def __init__(self, function, stop_after=None):
        self.function, self.stop_after, self.outcomes = function, stop_after, []

    def __call__(self, *arguments, **settings):
        if len(self.outcomes) == self.stop_after:
            raise KeyboardInterrupt
        self.outcomes.append(self.function(*arguments, **settings))
        return self.outcomes[-1]


@pytest.fixture
def probes(monkeypatch):
    monkeypatch.setattr(scoring, "probe_task", counted := Counted(scoring.probe_task))
    return counted


@pytest.fixture
def trainings(monkeypatch):
    monkeypatch.setattr(study, "pretrain", counted := Counted(study.pretrain))
    return counted


@pytest.mark.parametrize(
    ("only", "models"),
    [
        ("SimCLR", ["SimCLR"]),
        ("simclr wide", ["SimCLR wide"]),
        ("SimCLR, 200 epochs", ["SimCLR, 200 epochs"]),
        ("VICReg, SimCLR, 200 epochs", ["VICReg", "SimCLR, 200 epochs"]),
        ("SimCLR, VICReg", ["SimCLR", "VICReg"]),
        ("200", ["SimCLR, 200 epochs", "SimCLR + Ours-Scratch, 200 epochs"]),
        ("barlow, looc", ["Barlow Twins", "Barlow Twins + Ours-Scratch", "LooC++"]),
        ("", list(read_scale("mini").models)),
    ],
)
def test_models_are_chosen_by_name_or_by_a_part_of_it(only, models):
    assert chosen_models(read_scale("mini"), only) == models


@pytest.mark.parametrize("only", ["resnet", "SimCLR, resnet"])
def test_an_unknown_model_is_one_line(only):
    with pytest.raises(uw.UnweaveError, match=r"^`only`.*'resnet'.*SimCLR.*$"):
        chosen_models(read_scale("mini"), only)


def configurations():
    """Functions that read the settings of each model and each trial."""
    for scale in map(read_scale, ("mini", "paper")):
        for model in scale.models:
            yield pytest.param(lambda s=scale, m=model: s.config(m), id=f"{scale.name}-{model}")
        for model in scale.trials:
            for trial in range(len(scale.tried(model))):
                yield pytest.param(
                    lambda s=scale, m=model, t=trial: s.trial(m, t, {}), id=f"{scale.name}-{model}-{trial}"
                )


@pytest.mark.parametrize("configuration", list(configurations()))
def test_every_model_and_trial_builds(configuration):
    config = configuration()
    assert config.decode_size >= config.views.size
    objective = config.build_objective(100)
    assert set(config.views.build().spaces) >= set(objective.spaces)
    with torch.device("meta"):
        encoder = config.build_encoder(objective.spaces)
    assert tuple(encoder.spaces) == tuple(objective.spaces)


@pytest.mark.parametrize("name", ["mini", "paper"])
def test_every_model_of_a_scale_is_in_the_tables(name):
    scale = read_scale(name)
    assert {*scale.models, *scale.trials} <= set(ORDER)
    assert {scale.start(model) for model in scale.models} - {None} <= set(scale.models)
    folders = {study.folder_name(model) for model in scale.models}
    assert len(folders) == len(scale.models)


def test_all_13_tasks_are_scored_for_z_h_and_each_space(tmp_path, all_tasks):
    models = ("SimCLR", FT, "VICReg")
    with small_tasks.small_cifar():
        rows = run_transfer(tmp_path, all_tasks, only=",".join(models), **QUICK)
    assert names(tmp_path) == expected(*models)
    assert rows == read(tmp_path)["rows"]
    for row in rows:
        assert set(row["tasks"]) == set(TASKS)
        assert {group: row[group] for group in GROUPS} == pytest.approx(group_averages(row["tasks"]), abs=1e-4)
        assert row["tasks"]["pets"] > 0.5  # the classes differ in colour
        assert 0 <= row["pretraining_top1"] <= 1
    by_name = {(row["model"], row["features"]): row["sensitivity"] for row in rows}
    matrix = by_name[FT, "z"]
    assert list(matrix) == list(SPACES)
    assert all(set(line) == {"spatial", "appearance"} for line in matrix.values())
    assert by_name[FT, "spatial"] == matrix["spatial"]
    assert by_name[FT, "h"] is None
    head = read(tmp_path)
    assert {"command", "commit", "settings", "hardware", "versions", "seconds"} <= set(head)
    assert head["settings"]["common"]["backbone"] == "resnet50"
    files = {path.name for path in tmp_path.iterdir()}
    assert {"README.md", "grouped.tex", "full.tex", "figure.svg", "frontier.svg"} <= files


def test_a_finished_study_trains_and_probes_nothing_and_keeps_its_rows(tmp_path, few_tasks, probes, trainings):
    run_transfer(tmp_path, few_tasks, only="SimCLR", **QUICK)
    before = read(tmp_path)
    assert (len(probes.outcomes), len(trainings.outcomes)) == (5, 1)  # four tasks and the classes of pre-training
    run_transfer(tmp_path, few_tasks, only="SimCLR", **QUICK)
    assert (len(probes.outcomes), len(trainings.outcomes)) == (5, 1)
    assert read(tmp_path) == before


def test_an_interrupted_study_resumes_with_the_missing_probes(tmp_path, few_tasks, probes, trainings):
    probes.stop_after = 2
    with pytest.raises(KeyboardInterrupt):
        run_transfer(tmp_path, few_tasks, only="SimCLR", **QUICK)
    scores = tmp_path / "runs" / "simclr-0" / "scores.json"
    kept = json.loads(scores.read_text())
    assert len(kept) == 2
    assert read(tmp_path)["rows"] == []
    assert read(tmp_path)["seconds"] > 0
    probes.stop_after = None
    run_transfer(tmp_path, few_tasks, only="SimCLR", **QUICK)
    assert len(probes.outcomes) == 5
    assert [run.resumed_from for run in trainings.outcomes] == [0, 2]
    assert kept.items() <= json.loads(scores.read_text()).items()
    assert names(tmp_path) == expected("SimCLR")


def test_two_processes_train_each_model_together_and_write_its_rows_once(tmp_path, few_tasks):
    """The second waits while the first scores, and leaves out what the first finds claimed by another call."""
    out, models = tmp_path / "out", ("SimCLR", FT)
    (out / "runs").mkdir(parents=True)
    with locked(out / "runs" / "vicreg-0.lock"):
        children = [
            Child(tmp_path / f"child-{rank}", small_tasks.run_in_child, out, few_tasks, f"SimCLR,{FT},VICReg", env=env)
            for rank, env in enumerate(torchrun_environment(2))
        ]
        finished = [child.wait(60) for child in children]
    for done in finished:
        assert done.returncode == 0, done.stderr[-2000:]
    assert "2 processes" in finished[0].stderr
    assert names(out) == expected(*models)
    assert sorted((tmp_path / "log").read_text().split()) == 2 * ["simclr-0"] + 2 * ["simclr-ours-ft-0"]


def test_the_others_end_when_the_first_process_fails_to_score(tmp_path, few_tasks):
    command = [
        "reproduce",
        "transfer",
        "--data",
        few_tasks,
        "--quick",
        "--only",
        "SimCLR,VICReg",
        "--out",
        tmp_path / "out",
    ]
    children = [
        Child(tmp_path / f"child-{rank}", small_tasks.fail_to_score, list(map(str, command)), env=environment)
        for rank, environment in enumerate(torchrun_environment(2))
    ]
    first, second = (child.wait(60) for child in children)
    assert (first.returncode, second.returncode) == (2, 2)
    assert "no probe" in first.stderr
    assert "the same command resumes" in second.stderr
    assert "Traceback" not in first.stderr + second.stderr


def test_two_calls_share_the_models_and_train_the_start_of_ft_once(tmp_path, few_tasks):
    models = ("SimCLR", FT)
    children = [
        Child(tmp_path / f"child-{i}", small_tasks.run_in_child, tmp_path / "out", few_tasks, ",".join(models))
        for i in range(2)
    ]
    for child in children:
        done = child.wait(60)
        assert done.returncode == 0, done.stderr[-2000:]
    assert sorted((tmp_path / "log").read_text().split()) == ["simclr-0", "simclr-ours-ft-0"]
    assert names(tmp_path / "out") == expected(*models)


def test_a_model_is_claimed_by_one_call_at_a_time(tmp_path):
    processes, folder = Processes(uw.LaunchConfig(accelerator="cpu")), tmp_path / "simclr-0"
    with locked(tmp_path / "simclr-0.lock"), processes.claimed(folder) as mine:
        assert not mine
    with processes.claimed(folder) as mine:
        assert mine
        with processes.claimed(folder) as again, processes.claimed(tmp_path / "vicreg-0") as other:
            assert (again, other) == (False, True)


class Watched(Subset):
    """Images that count how often they are read."""

    reads = 0

    def __init__(self, source):
        super().__init__(source, list(range(len(source))))

    def read(self, i):
        Watched.reads += 1
        return super().read(i)


def test_trials_read_no_test_image_and_write_settings_and_scores(tmp_path, few_tasks, monkeypatch):
    found = transfer_data.find_tasks(few_tasks)
    watched = [replace(task, test=replace(task.test, source=Watched(task.test.source))) for task in found]
    monkeypatch.setattr(transfer_data, "find_tasks", lambda data: watched)
    scale = read_scale("mini")
    two = {**scale.trials["SimCLR"], "tried": scale.tried("SimCLR")[:2]}
    monkeypatch.setattr(tuning, "read_scale", lambda name: replace(scale, trials={"SimCLR": two}))
    rows = run_tuning(tmp_path, few_tasks, only="SimCLR", quick=True, device="cpu")
    assert rows == read(tmp_path, "tuning.json")["rows"]
    assert [(row["trial"], row["settings"]) for row in rows] == list(enumerate(two["tried"]))
    for row in rows:
        assert set(row["scores"]) == {"h", "z"}
        assert set(row["scores"]["z"]["tasks"]) == {task.name for task in found}
        assert row["training"]["loss"] > 0
    assert not list(tmp_path.rglob("checkpoint.safetensors"))
    monkeypatch.setattr(tuning, "pretrain", None)
    assert run_tuning(tmp_path, few_tasks, only="SimCLR", quick=True, device="cpu") == rows
    assert (tmp_path / "trials.svg").is_file()
    assert Watched.reads == 0
    run_transfer(tmp_path / "results", few_tasks, only="random weights", **QUICK)
    assert Watched.reads > 0


def test_settings_are_chosen_and_results_measured_on_different_validation_images(few_tasks):
    settings = {"device": "cpu", "fit": 12}
    parts = [TransferData(few_tasks, few_tasks / "imagenet", validation=v, **settings).classes for v in (True, False)]
    tuning, results = ({part.test.source.name(i) for i in range(len(part.test.source))} for part in parts)
    assert (len(tuning), len(results)) == (6, 24)
    assert not tuning & results
    assert [len(part.fit.source) for part in parts] == [12, 12]
    assert {name: parts[1].fit.labels.tolist().count(name) for name in small_tasks.NAMES} == dict.fromkeys(
        small_tasks.NAMES, 4
    )


def test_the_command_scores_random_weights(tmp_path, few_tasks):
    command = [
        "reproduce",
        "transfer",
        "--data",
        few_tasks,
        "--quick",
        "--only",
        "random weights",
        "--out",
        tmp_path / "a",
    ]
    done = unweave(tmp_path / "child", command)
    assert done.returncode == 0, done.stderr
    assert names(tmp_path / "a") == [("random weights", "h")]
    assert "random weights" in done.stdout


def test_only_some_calls_train_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("unweave.reproduce.transfer.processes.TRAINING_AT_ONCE", 2)
    processes, inside, most = Processes(uw.LaunchConfig(accelerator="cpu")), [], []

    def train(number):
        with processes.training(tmp_path):
            inside.append(number)
            most.append(len(inside))
            time.sleep(0.2)
            inside.remove(number)

    threads = [threading.Thread(target=train, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 5
    assert max(most) == 2


@pytest.mark.parametrize("wrong", ["no folder", "no task", "no photographs", "half a task"])
def test_wrong_data_is_one_line_before_any_training(tmp_path, few_tasks, wrong):
    data = tmp_path / "data"
    if wrong != "no folder":
        (data / "tiny-imagenet").mkdir(parents=True)
    if wrong == "no photographs":
        data = tmp_path / "tasks"
        small_tasks.write_pets(data)
    if wrong == "half a task":
        small_tasks.write_pets(data)
        (data / "oxford-iiit-pet" / "annotations" / "test.txt").unlink()
    done = unweave(tmp_path / "child", ["reproduce", "transfer", "--data", data, "--out", tmp_path / "out"])
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("unweave: ")
    assert str(data) in done.stderr
    assert not (tmp_path / "out" / "runs").exists()


def test_supervised_training_lowers_the_cross_entropy_once(tmp_path, few_tasks, monkeypatch):
    losses = Counted(supervised.F.cross_entropy)
    monkeypatch.setattr(supervised.F, "cross_entropy", losses)
    data = TransferData(few_tasks, few_tasks / "imagenet", device="cpu", fit=12)
    colours_stay = {"jitter": (0, 0, 0, 0), "solarize": (0, 0)}
    changes = {**study.QUICK, **colours_stay, "steps": 16, "batch_size": 30}
    config = read_scale("mini").config(SUPERVISED, changes)
    supervised.train_supervised(data, config, tmp_path, progress=False)
    values = [loss.item() for loss in losses.outcomes]
    assert len(values) == 16
    assert sum(values[-4:]) < 0.7 * sum(values[:4])
    model = uw.load(tmp_path)
    assert model(torch.zeros(2, 3, 32, 32))["h"].shape == (2, config.build_encoder(("content",)).feature_dim)
    supervised.train_supervised(data, config, tmp_path, progress=False)
    assert len(losses.outcomes) == 16

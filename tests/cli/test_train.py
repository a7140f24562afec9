"""``unweave train``, ``embed`` and ``export`` as they are typed."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml

from processes import Child, command, torchrun_environment
from small_runs import flags, weights
from unweave.cli.main import main
from unweave.cli.train import settings_from
from unweave.training import load_checkpoint, metrics

CHECKPOINT = "checkpoint.safetensors"


def same(one, two, atol=0.0):
    return one.keys() == two.keys() and all((one[k] - two[k]).abs().max() <= atol for k in one)


@pytest.fixture(scope="module")
def trained(photo_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("cli") / "run"
    assert main(["train", str(photo_folder), "--out", str(out), *flags(epochs=4, probe="none")]) == 0
    return out


def test_train_embed_and_export(trained, photo_folder, tmp_path, capsys):
    assert main(["embed", str(trained), str(photo_folder), "--out", str(tmp_path / "z.parquet"), "--workers", "0"]) == 0
    assert (tmp_path / "z.parquet").stat().st_size > 1000
    assert main(["export", str(trained), "--out", str(tmp_path / "x"), "--no-onnx"]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "x" / n) for n in ("model.safetensors", "model.json")]


def test_flags_override_the_file_and_the_file_overrides_the_preset(tmp_path):
    text = "training: {batch_size: 32, optim: {lr: 1e-2}}\nviews: {jitter: [0, 0, 0, 0]}\n"
    (tmp_path / "c.yaml").write_text(text)
    made = settings_from("cifar", tmp_path / "c.yaml", {"optim": {"lr": 3.0}, "training": {}})
    assert (made.training.optim.lr, made.training.batch_size, made.views.size) == (3.0, 32, 32)
    assert made.views.jitter == (0, 0, 0, 0)
    assert settings_from("cifar", None, {}).training.batch_size == 512


def test_a_runs_own_configuration_can_be_used_again(trained, photo_folder, tmp_path):
    config = trained / "config.yaml"
    assert main(["train", str(photo_folder), "--out", str(tmp_path / "run"), "--config", str(config)]) == 0
    assert same(weights(tmp_path / "run"), weights(trained))
    ours, theirs = (yaml.safe_load((out / "config.yaml").read_text()) for out in (tmp_path / "run", trained))
    assert ours == theirs


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "nowhere", "--out", "r"], "no folder or file named 'nowhere'"),
        (["train", ".", "--out", "r", "--epochs=-1"], "--epochs must be 0 or more"),
        (
            ["train", ".", "--out", "r", "--projector-epochs", "3"],
            "--projector-epochs needs a trained base: set --init",
        ),
        (["train", ".", "--out", "r", "--config", "no.yaml"], "no.yaml cannot be read"),
        (["train", ".", "--out", "r", "--preset", "big"], "there is no --preset 'big'"),
        (["embed", "nowhere", "nothing", "--out", "z"], "no folder or file named 'nothing'"),
        (["export", "nowhere"], "nowhere is not the folder of a run"),
        (["reproduce", "sprites", "--only", "odd", "--out", "s"], "--only 'odd' matches no row"),
    ],
)
def test_mistakes_are_one_line_that_names_the_flag(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
    assert "`" not in said


def test_a_refused_run_names_the_flags_that_differ(trained, photo_folder, capsys):
    assert main(["train", str(photo_folder), "--out", str(trained), *flags(epochs=4, probe="none", lr=0.5)]) == 2
    assert "--lr was 0.002, now 0.5" in capsys.readouterr().err


def wait_for(path, child, seconds=60):
    until = time.monotonic() + seconds
    while not path.exists():
        assert child.is_running(), "the run ended too early"
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [(signal.SIGTERM, 143, "stopped at step"), (signal.SIGINT, 130, "the same command resumes")],
)
def test_a_signal_saves_and_ends_cleanly(photo_folder, tmp_path, sent, status, words):
    long = flags(epochs=2000, probe="none", cache="none", workers=2)
    child = Child(tmp_path / "child", command, ["train", str(photo_folder), "--out", str(tmp_path / "run"), *long])
    wait_for(tmp_path / "run" / "metrics.jsonl", child)
    time.sleep(0.5)
    os.killpg(child.pid, sent)  # as Slurm and a terminal do: the run and its workers alike
    done = child.wait(60)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert words in done.stderr
    reached = load_checkpoint(tmp_path / "run" / CHECKPOINT)["step"]
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["step"] == reached > 0


def slurm_environment(processes):
    common = {
        "SLURM_NTASKS": str(processes), "SLURM_NTASKS_PER_NODE": str(processes), "SLURM_NNODES": "1",
        "SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NAME": "train", "SLURM_NODEID": "0", "SLURM_NODELIST": "localhost",
    }  # fmt: skip
    return [{**common, "SLURM_PROCID": str(r), "SLURM_LOCALID": str(r)} for r in range(processes)]


@pytest.mark.parametrize("launcher", ["unweave", "torchrun", "slurm"])
def test_two_processes_started_by_any_launcher(photo_folder, tmp_path, trained, launcher):
    arguments = ["train", str(photo_folder), "--out", str(tmp_path / "run"), *flags(epochs=4, probe="none")]
    if launcher == "unweave":  # Fabric starts the second process with the interpreter and arguments of the first
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        started = [sys.executable, "-m", "unweave", *arguments, "--devices", "2", "--precision", "32-true"]
        assert subprocess.run(started, env=environment, timeout=120).returncode == 0
    else:
        environments = {"torchrun": torchrun_environment, "slurm": slurm_environment}[launcher](2)
        children = [
            Child(tmp_path / str(rank), command, arguments, env=environment)
            for rank, environment in enumerate(environments)
        ]
        for child in children:
            done = child.wait()
            assert done.returncode == 0, done.stderr
    # The network has no batch norm: the weights are those of one process.
    assert same(weights(tmp_path / "run"), weights(trained), atol=1e-4)


def test_unreadable_images_of_all_processes_are_in_one_list(photo_folder, tmp_path):
    photos = tmp_path / "photos"
    shutil.copytree(photo_folder, photos)
    bad = {f"new/{name}.jpg" for name in "abcdef"}
    for name in bad:
        (photos / name).touch()
    settings = flags(epochs=1, probe="none", cache="none", batch_size=22, max_bad=0.2)
    arguments = ["train", str(photos), "--out", str(tmp_path / "run"), *settings]
    children = [
        Child(tmp_path / str(rank), command, arguments, env=environment)
        for rank, environment in enumerate(torchrun_environment(2))
    ]
    first, _ = [child.wait() for child in children]
    assert first.returncode == 0, first.stderr
    lines = (tmp_path / "run" / "unreadable.jsonl").read_text().splitlines()
    assert {json.loads(line)["name"] for line in lines} == bad
    assert len(lines) == len(bad)
    assert "6 images could not be read" in first.stderr


def train_until_the_disk_is_full(arguments):
    """A limit on the size of files has the effect of a full disk: writes fail half-way in the same manner."""
    from unweave.training import state

    save = state.save_checkpoint

    def limited(path, contents):
        if contents["step"] == 5:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        save(path, contents)

    state.save_checkpoint = limited
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    return command(arguments)


def test_a_full_disk_is_one_line_and_keeps_the_previous_checkpoint(photo_folder, tmp_path):
    out = tmp_path / "run"
    settings = flags(epochs=40, probe="none", checkpoint_minutes=0)
    arguments = ["train", str(photo_folder), "--out", str(out), *settings]
    done = Child(tmp_path / "child", train_until_the_disk_is_full, arguments).wait()
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "the checkpoint of step 5 could not be written" in done.stderr.splitlines()[-1]
    assert load_checkpoint(out / CHECKPOINT)["step"] == 4
    assert not list(out.glob(".checkpoint*"))


def test_a_full_disk_for_metrics_is_one_line_too(photo_folder, tmp_path, capsys, monkeypatch):
    out = tmp_path / "run"

    def full(*_, **__):
        return open("/dev/full", "w", buffering=1)

    monkeypatch.setattr(metrics, "open", full, raising=False)
    assert main(["train", str(photo_folder), "--out", str(out), *flags(epochs=1, probe="none")]) == 2
    assert "No space left on device" in capsys.readouterr().err.splitlines()[-1]


def test_a_collapse_is_reported_from_the_first_steps_to_the_end(photo_folder, tmp_path, capsys):
    settings = flags(epochs=3, probe="none", lr=1000, warmup=0)
    assert main(["train", str(photo_folder), "--out", str(tmp_path / "run"), *settings]) in (0, 2)
    said = [line for line in capsys.readouterr().err.splitlines() if "collaps" in line]
    assert said
    assert all(line.startswith("unweave: ") and ".py" not in line for line in said)


def test_a_quiet_run_prints_nothing(photo_folder, tmp_path, capsys):
    settings = flags(epochs=1, probe="none")
    assert main(["train", str(photo_folder), "--out", str(tmp_path / "run"), "--quiet", *settings]) == 0
    said = capsys.readouterr()
    assert said.out + said.err == ""


@pytest.mark.parametrize(
    "wrong",
    [
        "--lr nan", "--lr 1e38", "--seed 99999999999999999999", "--hidden 99999999999", "--workers -1",
        "--accelerator nope", "--max-bad nan", "--dim 0", "--threads 0", "--styles nope",
    ],
)  # fmt: skip
def test_impossible_settings_are_one_line(photo_folder, tmp_path, capsys, wrong):
    words = [*flags(epochs=1, probe="none", depth=2), *wrong.split()]
    assert main(["train", str(photo_folder), "--out", str(tmp_path / "run"), *words]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("unweave: ")
    assert wrong.split()[0].removeprefix("--") in said[-1]


def test_when_a_process_is_lost_the_other_says_which_in_one_line(photo_folder, tmp_path):
    settings = flags(epochs=2000, probe="none", checkpoint_every=1)
    arguments = ["train", str(photo_folder), "--out", str(tmp_path / "run"), *settings]
    first, second = (
        Child(tmp_path / str(rank), command, arguments, env=environment)
        for rank, environment in enumerate(torchrun_environment(2))
    )
    wait_for(tmp_path / "run" / CHECKPOINT, first)
    os.kill(second.pid, signal.SIGKILL)
    done = first.wait(60)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "process 1 of 2 was lost" in done.stderr.splitlines()[-1]
    second.process.join()
    assert load_checkpoint(tmp_path / "run" / CHECKPOINT)["step"] > 0

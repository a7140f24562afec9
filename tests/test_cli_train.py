"""The verbs for images of one's own, as they are typed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from unweave.cli import main, starting_point
from unweave.errors import UnweaveError
from unweave.training import load_checkpoint
from unweave.training.presets import PRESETS

sys.path.insert(0, str(Path(__file__).parent / "training"))
from tiny_pretrain import flags, weights

COMMAND = [sys.executable, "-m", "unweave.cli"]
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
    assert capsys.readouterr().out.split() == [str(tmp_path / "x" / n) for n in ("model.safetensors", "config.yaml")]


def test_flags_go_before_the_file_and_the_file_before_the_preset(tmp_path):
    (tmp_path / "c.yaml").write_text("lr: 1e-2\nbatch-size: 32\njitter: [0, 0, 0, 0]\n")
    made = starting_point(["train", "x", "--preset", "cifar", "--config", str(tmp_path / "c.yaml"), "--lr", "3"])
    assert (made.lr, made.batch_size, made.size) == (0.01, 32, 32)
    assert made.jitter == (0, 0, 0, 0)


def test_a_runs_own_configuration_can_be_used_again(trained, photo_folder, tmp_path):
    config = trained / "config.yaml"
    assert main(["train", str(photo_folder), "--out", str(tmp_path / "run"), "--config", str(config)]) == 0
    assert same(weights(tmp_path / "run"), weights(trained))
    ours, theirs = (yaml.safe_load((out / "config.yaml").read_text()) for out in (tmp_path / "run", trained))
    assert ours == theirs


@pytest.mark.parametrize(
    ("text", "words"),
    [("sizes: 3", "did you mean size"), ("size: big", "size is a int, not 'big'"), ("- 1", "name: value"),
     ("method: byol", "one of simclr"), ("jitter: [1]", "4 numbers"), ("a: [", "no YAML"), ("styles: 1", "bool")],
)  # fmt: skip
def test_mistakes_in_the_file_are_one_line(tmp_path, text, words):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(UnweaveError, match=words) as error:
        starting_point(["train", "--config", str(tmp_path / "c.yaml")])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_say_command_hardware_hours_and_score_and_can_be_built(name):
    from unweave.training.recipe import make_objective, make_views

    preset = PRESETS[name]
    assert f"--preset {name}" in preset.command
    assert all((preset.about, preset.hardware, preset.hours, preset.score))
    assert make_views(preset.config).spaces == make_objective(preset.config, 10).spaces


def test_the_papers_preset_is_the_papers():
    config = PRESETS["imagenet"].config
    assert (config.backbone, config.size, config.epochs, config.batch_size) == ("resnet50", 224, 100, 2048)
    assert (config.dim, config.hidden, config.depth, config.optimizer) == (8192, 8192, 3, "lars")
    assert (config.blur, config.solarize, config.jitter) == ((1.0, 0.1), (0.0, 0.2), (0.4, 0.4, 0.2, 0.1))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "nowhere", "--out", "r"], "no folder or file named 'nowhere'"),
        (["train", ".", "--out", "r", "--epochs=-1"], "--epochs cannot be negative"),
        (["train", ".", "--out", "r", "--projector-epochs", "3"], "say which by --init"),
        (["train", ".", "--out", "r", "--config", "no.yaml"], "no.yaml cannot be read"),
        (["embed", "nowhere", "nothing", "--out", "z"], "no folder or file named 'nothing'"),
        (["export", "nowhere"], "nowhere is no run"),
    ],
)
def test_mistakes_are_one_line_without_a_traceback(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def wait_for(path, process, seconds=60):
    until = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, "the run ended too early"
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [(signal.SIGTERM, 143, "told to stop at step"), (signal.SIGINT, 130, "the same command goes on")],
)
def test_a_signal_saves_and_leaves_cleanly(photo_folder, tmp_path, sent, status, words):
    long = flags(epochs=2000, probe="none", cache="none", workers=2)
    command = [*COMMAND, "train", str(photo_folder), "--out", str(tmp_path / "run"), *long]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_for(tmp_path / "run" / "metrics.jsonl", process)
    time.sleep(0.5)
    os.killpg(process.pid, sent)  # as Slurm and a terminal do: the run and its workers alike
    _, said = process.communicate(timeout=60)
    assert process.returncode == status, said
    assert "Traceback" not in said
    assert words in said
    reached = load_checkpoint(tmp_path / "run" / CHECKPOINT)["step"]
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["step"] == reached > 0


@pytest.mark.parametrize("launcher", ["ourselves", "torchrun", "slurm"])
def test_two_processes_however_they_are_started(photo_folder, tmp_path, trained, launcher):
    arguments = ["train", str(photo_folder), "--out", str(tmp_path), *flags(epochs=4, probe="none")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if launcher == "ourselves":
        runs = [subprocess.Popen([*COMMAND, *arguments, "--devices", "2"], env=environment)]
    elif launcher == "torchrun":
        start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "unweave.cli"]
        runs = [subprocess.Popen([sys.executable, *start, *arguments], env=environment)]
    else:
        slurm = {
            "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "1", "SLURM_JOB_ID": str(os.getpid()),
            "SLURM_JOB_NAME": "train", "SLURM_NODEID": "0", "SLURM_NODELIST": "localhost",
        }  # fmt: skip
        tasks = [{**environment, **slurm, "SLURM_PROCID": r, "SLURM_LOCALID": r} for r in "01"]
        runs = [subprocess.Popen([*COMMAND, *arguments], env=task) for task in tasks]
    assert [run.wait(timeout=120) for run in runs] == [0] * len(runs)
    # The network has no batch norm: the weights are those of one process.
    assert same(weights(tmp_path), weights(trained), atol=1e-4)


def test_what_any_process_could_not_read_is_in_one_list(photo_folder, tmp_path):
    photos = tmp_path / "photos"
    shutil.copytree(photo_folder, photos)
    bad = {f"new/{name}.jpg" for name in "abcdef"}
    for name in bad:
        (photos / name).touch()
    command = ["train", str(photos), "--out", str(tmp_path / "run"), "--devices", "2", "--max-bad", "0.2"]
    settings = flags(epochs=1, probe="none", cache="none", batch_size=22)
    done = subprocess.run([*COMMAND, *command, *settings], timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "run" / "skipped.txt").read_text().splitlines()
    assert {line.split("\t")[0] for line in lines} == bad
    assert len(lines) == len(bad)
    assert "6 images could not be read" in done.stderr


def test_a_full_disk_is_one_line_and_keeps_the_checkpoint_before(photo_folder, tmp_path):
    """A limit on the size of files stands in for the disk: writes fail half-way in the same manner."""
    out = tmp_path / "run"
    first = ["train", str(photo_folder), "--out", str(out), *flags(epochs=40, probe="none", checkpoint_minutes=0)]
    code = (
        "import resource, sys, unweave.training.resume as r\n"
        "from unweave.cli import main\n"
        "save = r.ckpt.save_checkpoint\n"
        "def limited(path, state):\n"
        "    if state['step'] == 5: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "    save(path, state)\n"
        "r.ckpt.save_checkpoint = limited\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run([sys.executable, "-c", code, *first], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "the checkpoint of step 5 could not be written" in done.stderr.splitlines()[-1]
    assert load_checkpoint(out / CHECKPOINT)["step"] == 4
    assert not list(out.glob(".checkpoint*"))


def test_a_full_disk_anywhere_else_is_one_line_too(photo_folder, tmp_path, capsys):
    out = tmp_path / "run"
    out.mkdir()
    (out / "metrics.jsonl").symlink_to("/dev/full")
    assert main(["train", str(photo_folder), "--out", str(out), *flags(epochs=1, probe="none")]) == 2
    assert "No space left on device" in capsys.readouterr().err.splitlines()[-1]


def test_doctor_tells_versions_devices_and_threads(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    for word in ("unweave", "torch", "pillow", "cores", "threads", "memory free", "libjpeg-turbo"):
        assert word in said


def test_presets_are_listed(capsys):
    assert main(["presets"]) == 0
    said = capsys.readouterr().out
    assert all(f"{name}: " in said for name in PRESETS)


def test_a_reader_that_leaves_early_sees_no_traceback():
    process = subprocess.Popen([*COMMAND, "presets"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    process.stdout.close()
    assert "Traceback" not in process.communicate(timeout=60)[1].decode()

"""Features in a folder: any number of processes write the rows of one process, and an interrupted run resumes."""

import os
import shutil
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import unweave as uw
from processes import Child, command, torchrun_environment
from small_models import photograph, small_model
from unweave.cli.main import main
from unweave.errors import UnweaveError
from unweave.inference import SpacesModel, embed_images, export_model

COUNT = 23
BAD = (0, 4, 5, 6, 7, 21)
"""Images 4 to 7 are the whole of one batch."""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Pictures in two classes; some cannot be read."""
    folder = tmp_path_factory.mktemp("pictures")
    for i in range(COUNT):
        path = folder / ("ab"[i > 9]) / f"{i:02}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"nonsense") if i in BAD else photograph(20 + i, 24, i).save(path)
    return folder


@pytest.fixture(scope="module")
def whole(run, pictures, tmp_path_factory):
    """The table that one process writes to one file."""
    out = tmp_path_factory.mktemp("whole") / "z.parquet"
    assert main(arguments(run, pictures, out)) == 0
    return pq.read_table(out)


def arguments(run, data, out, *flags):
    fixed = ["--workers", "0", "--device", "cpu", "--batch-size", "4", "--max-bad", "0.5"]
    return ["embed", str(run), str(data), "--out", str(out), *fixed, *flags]


def slurm_environment(processes):
    common = {"SLURM_NTASKS": str(processes), "SLURM_NNODES": "1", "SLURM_JOB_NAME": "embed"}
    return [{**common, "SLURM_PROCID": str(r), "SLURM_LOCALID": str(r)} for r in range(processes)]


def together(tmp_path, given, environments):
    children = [Child(tmp_path / f"p{r}", command, given, env=env) for r, env in enumerate(environments)]
    return [child.wait() for child in children]


def files(out):
    return {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}


@pytest.mark.parametrize(
    ("launch", "processes", "count", "flags"),
    [
        (torchrun_environment, 2, 2, []),
        (torchrun_environment, 3, 6, ["--images-per-file", "1"]),
        (slurm_environment, 4, 3, []),  # files of whole batches: there are 6, and one process gets none
    ],
)
def test_any_number_of_processes_write_the_rows_of_one(run, pictures, whole, tmp_path, launch, processes, count, flags):
    given = arguments(run, pictures, tmp_path / "z", *flags)
    done = together(tmp_path, given, launch(processes))
    assert all(one.returncode == 0 for one in done), [one.stderr for one in done]
    assert pq.read_table(tmp_path / "z").equals(whole)
    assert len(files(tmp_path / "z")) == count
    assert any("17 images" in one.stderr for one in done)


def test_one_process_writes_a_folder_too(run, pictures, whole, tmp_path):
    assert main(arguments(run, pictures, f"{tmp_path}/z/", "--images-per-file", "8")) == 0
    assert pq.read_table(tmp_path / "z").equals(whole)
    assert len(files(tmp_path / "z")) == 3


def embed_and_be_killed(given, part):
    """Without warning, when the rows of this part are in a temporary file."""
    from unweave.inference.folder import EmbeddingFolder

    save = EmbeddingFolder.save_unreadable

    def killed(self, number, unreadable):
        save(self, number, unreadable)
        if number == part:
            os.kill(os.getpid(), signal.SIGKILL)

    EmbeddingFolder.save_unreadable = killed
    return command(given)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_run_resumes_with_any_number_of_processes(run, pictures, whole, tmp_path, processes):
    out = tmp_path / "z"
    given = arguments(run, pictures, f"{out}/", "--images-per-file", "4")
    assert Child(tmp_path / "killed", embed_and_be_killed, given, 3).wait().returncode == -signal.SIGKILL
    kept = files(out)
    assert sorted(kept) == [f"part-{i:05}.parquet" for i in range(3)]
    assert list(out.glob(".part-*"))
    done = together(tmp_path, given, torchrun_environment(processes))
    assert all(one.returncode == 0 for one in done), [one.stderr for one in done]
    assert pq.read_table(out).equals(whole)
    assert kept.items() <= files(out).items()
    assert not list(out.glob(".part-*"))


def test_a_complete_folder_is_left_as_it_is(run, pictures, tmp_path):
    given = arguments(run, pictures, f"{tmp_path}/z/", "--images-per-file", "8")
    assert main(given) == 0
    before = files(tmp_path / "z")
    for changed in ([], ["--batch-size", "3"], ["--images-per-file", "100"]):
        assert main([*given, *changed]) == 0
    assert files(tmp_path / "z") == before


@pytest.mark.parametrize("other", ["model", "images", "settings"])
def test_another_model_or_other_images_are_refused_unless_told(run, pictures, tmp_path, capsys, other):
    out, small = tmp_path / "z", ["--images-per-file", "4"]
    assert main(arguments(run, pictures, f"{out}/", *small)) == 0
    before, flags = files(out), []
    if other == "model":
        model = small_model()
        with torch.no_grad():
            next(model.parameters())[0] += 1
        run = tmp_path / "other"
        export_model(model, run, onnx=False)
    elif other == "images":
        pictures = shutil.copytree(pictures, tmp_path / "other")
        photograph(30, 30, 99).save(pictures / "a" / "01.png")
    else:
        flags = ["--dtype", "float16"]
    capsys.readouterr()
    given = arguments(run, pictures, f"{out}/", *flags)
    assert main(given) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "--overwrite" in said
    assert files(out) == before
    assert main([*given, "--overwrite"]) == 0
    assert main([*given[:4], str(tmp_path / "one.parquet"), *given[5:]]) == 0
    assert pq.read_table(out).equals(pq.read_table(tmp_path / "one.parquet"))
    assert len(files(out)) == 1  # those of 4 images each are gone


def test_the_fraction_of_unreadable_images_is_that_of_all_processes(run, pictures, tmp_path):
    given = [*arguments(run, pictures, tmp_path / "z", "--images-per-file", "4"), "--max-bad", "0.22"]
    done = together(tmp_path, given, torchrun_environment(2))
    assert 2 in [one.returncode for one in done]
    for one in done:
        assert "Traceback" not in one.stderr
    assert any("more than --max-bad" in one.stderr for one in done)
    given[-1] = "0.5"
    assert main([*given[:4], f"{tmp_path}/z/", *given[5:]]) == 0
    assert pq.read_table(tmp_path / "z").num_rows == COUNT - len(BAD)


def test_folders_with_other_files_and_files_for_several_processes_are_refused(run, pictures, tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "mine.txt").touch()
    for out in (tmp_path / "photos", f"{tmp_path}/photos/", f"{tmp_path}/photos/mine.txt/"):
        assert main(arguments(run, pictures, out, "--overwrite")) == 2
    for name, value in torchrun_environment(2)[0].items():
        monkeypatch.setenv(name, value)
    assert main(arguments(run, pictures, tmp_path / "z.parquet")) == 2
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine.txt", "photos"]


def test_a_damaged_manifest_is_one_line(run, pictures, tmp_path, capsys):
    assert main(arguments(run, pictures, f"{tmp_path}/z/")) == 0
    for text in ("", "[]", '{"images": 3}', '{"images": "x", "images_per_file": 1, "made_from": {}}'):
        (tmp_path / "z" / "_manifest.json").write_text(text)
        capsys.readouterr()
        assert main(arguments(run, pictures, f"{tmp_path}/z/")) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_float16_features_are_numpys_rounding_and_take_less_space(run, pictures, whole, tmp_path):
    for ending in ("parquet", "csv"):
        assert main(arguments(run, pictures, tmp_path / f"z.{ending}", "--dtype", "float16")) == 0
    table = pq.read_table(tmp_path / "z.parquet")
    for name in ("h", "content", "hue"):
        assert table.schema.field(name).type.value_type == pa.float16()
        wanted = np.stack(whole[name].to_numpy()).astype(np.float16)
        assert np.array_equal(np.stack(table[name].to_numpy()), wanted)
    listed = np.genfromtxt(tmp_path / "z.csv", delimiter=",", names=True)
    assert np.array_equal(listed["hue_1"].astype(np.float16), np.stack(table["hue"].to_numpy())[:, 1])


class Large(torch.nn.Module):
    def forward(self, images):
        return {"h": images.flatten(1)[:, :2] * 0 + torch.tensor([1.0, 1e5])}


def test_numbers_too_large_for_float16_are_refused(pictures, tmp_path):
    model = SpacesModel(Large(), input_shape=(3, 16, 16))
    settings = {"device": "cpu", "workers": 0, "max_bad": 0.5}
    with pytest.raises(UnweaveError, match="`dtype` float16"):
        embed_images(model, pictures, tmp_path / "z.parquet", dtype="float16", **settings)
    assert not list(tmp_path.iterdir())
    embed_images(model, pictures, tmp_path / "z.parquet", **settings)


def test_a_folder_is_written_from_python_and_progress_counts_what_is_done(run, pictures, whole, tmp_path):
    seen = []
    settings = {"device": "cpu", "workers": 0, "max_bad": 0.5, "batch_size": 4, "images_per_file": 8}
    for _ in range(2):
        found = embed_images(uw.load(run), pictures, f"{tmp_path}/z/", on_progress=seen.append, **settings)
        assert sorted(found.found) == list(BAD)
    assert seen == sorted(seen)
    assert seen[-2:] == [COUNT, COUNT]
    assert pq.read_table(tmp_path / "z").equals(whole)

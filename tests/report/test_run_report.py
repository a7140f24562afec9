"""The report of a run."""

import json
import re

import pytest
import torch

import small_runs as small
import unweave as uw
from unweave.cli.main import main
from unweave.data import open_source
from unweave.pretraining.report import hold_out, write_run_report
from unweave.report.verdict import assess, summary


@pytest.fixture(scope="module")
def run(photo_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "run"
    small.pretrain(photo_folder, out, epochs=2, probe="none", report=True)
    return out


def test_every_run_ends_with_a_report(run):
    report = json.loads((run / "report.json").read_text())
    assert report["spaces"] == ["content", "spatial", "appearance"]
    assert report["groups"] == ["spatial", "appearance"]
    assert (
        set(report["sensitivity"]) == set(report["spaces"]) == set(report["variance"]) == set(report["effective_rank"])
    )
    assert all(value >= 0 for row in report["sensitivity"].values() for value in row.values())
    assert set(report["knn"]) == {"h", *report["spaces"]}
    assert report["images"] == 60
    assert {"seconds", "commit", "command", "hardware", "versions"} <= set(report)


def test_the_page_is_self_contained(run):
    page = (run / "report.html").read_text()
    assert page.count("<img") == 6  # neighbours and pairs in three spaces
    assert page.count("<svg") == 2  # the matrix and the curves
    assert not re.search(r"(src|href)=.?https?://", page)


def test_the_command_reports_on_other_images(run, photo_folder, tmp_path, capsys):
    out = tmp_path / "page"
    out.mkdir()
    assert main(["report", str(run), str(photo_folder / "new"), "--out", str(out), "--workers", "0"]) == 0
    assert "spaces are" in capsys.readouterr().out
    report = json.loads((out / "report.json").read_text())
    assert report["held_out"]
    assert report["knn"] is None  # one folder, no classes
    assert report["images"] == len(list((photo_folder / "new").iterdir()))


def test_it_measures_what_the_function_measures(run, photo_folder):
    from unweave.data import load_images
    from unweave.training import RunFolder

    report = write_run_report(run, workers=0)
    images = load_images(open_source(photo_folder), 40, workers=0).images
    found = uw.sensitivity(uw.load(run), RunFolder(run).load_views(), images)
    for space, row in found.items():
        assert row == pytest.approx(report.sensitivity[space])


def test_images_are_kept_out_of_training_where_there_are_enough():
    class Many:
        labels = classes = None

        def __len__(self):
            return 2000

        def name(self, i):
            return str(i)

    rest, held_out = hold_out(Many(), 0.05)
    names = [{part.name(i) for i in range(len(part))} for part in (rest, held_out)]
    assert [len(part) for part in names] == [1900, 100]
    assert not names[0] & names[1]
    assert hold_out(Many(), 0.01)[1] is None
    assert len(hold_out(Many(), 1.0)[1]) == 500


def test_a_run_with_enough_images_is_not_trained_on_those_of_its_report(photo_folder, tmp_path):
    small.pretrain(photo_folder, tmp_path, epochs=1, probe="none", held_out=0.6, report=True)
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["images"], report["held_out"]) == (36, True)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2  # 24 images in batches of 12


def test_verdicts():
    separate = {"content": {"a": 0.1, "b": 0.0}, "a": {"a": 0.9, "b": 0.1}, "b": {"a": 0.0, "b": 0.6}}
    spaces = ("content", "a", "b")
    full = dict.fromkeys(spaces, 1.0)
    findings = assess(spaces, separate, full)
    assert all(finding.good for finding in findings)
    assert "are separate" in summary(findings)
    leaking = {**separate, "content": {"a": 0.4, "b": 0.0}}
    assert next(f.text for f in assess(spaces, leaking, full) if not f.good).startswith("content is not invariant to a")
    weak = {**separate, "b": {"a": 0.0, "b": 0.05}}
    assert [f.space for f in assess(spaces, weak, full) if not f.good] == ["b"]
    collapsed = assess(spaces, separate, {**full, "a": 0.01})
    assert [f.space for f in collapsed if not f.good] == ["a"]
    assert "collapsed" in summary(collapsed)


def test_gray_images_and_runs_without_styles(photo_folder, tmp_path):
    small.pretrain(
        photo_folder, tmp_path / "gray", epochs=1, probe="none", channels=1, report=True, mean=(0.5,), std=(0.3,)
    )
    assert json.loads((tmp_path / "gray" / "report.json").read_text())["sensitivity"]
    small.pretrain(photo_folder, tmp_path / "base", epochs=1, probe="none", styles=("none",), report=True)
    assert json.loads((tmp_path / "base" / "report.json").read_text())["sensitivity"] == {}


def test_a_model_keeps_the_geometry_of_its_loss(run):
    z = torch.randn(10, 8)
    assert torch.equal(uw.load(run).normalize(z), uw.SimCLR(temperature=0.15).normalize(z))

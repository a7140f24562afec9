"""metrics.jsonl after a crash or damage."""

import json

import numpy as np

from unweave.training.metrics import MetricsFile


def test_a_resumed_run_keeps_the_lines_up_to_its_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    first = MetricsFile(path)
    for step in (1, 2, 3):
        first.write({"step": step, "loss": 0.5})
    assert [row["step"] for row in MetricsFile(path, keep_until=2).rows] == [1, 2]
    assert len(path.read_text().splitlines()) == 2


def test_damaged_lines_are_dropped_and_the_others_kept(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"step": step, "loss": 1.0}).encode() for step in range(1, 6)]
    lines[1] = b"\xff\xfe" + lines[1]
    lines[3] = b"[1, 2]"
    path.write_bytes(b"\n".join(lines) + b'\n{"step": 6, "lo')
    assert [row["step"] for row in MetricsFile(path, keep_until=9).rows] == [1, 3, 5]


def test_no_damage_raises(tmp_path):
    path, random = tmp_path / "metrics.jsonl", np.random.default_rng(0)
    whole = "".join(json.dumps({"step": step, "loss": 1.0}) + "\n" for step in range(1, 9)).encode()
    for _ in range(200):
        changed = bytearray(whole)
        for place in random.integers(0, len(whole), 3):
            changed[place] = random.integers(256)
        path.write_bytes(changed[: random.integers(1, len(changed) + 1)])
        assert all(isinstance(row["step"], int) for row in MetricsFile(path, keep_until=8).rows)

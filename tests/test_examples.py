"""What we show people runs: the example, the README's code, the benchmarks' quick forms."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*arguments: str, cwd: Path | None = None) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=300, cwd=cwd)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_plain_loop_is_short_and_runs():
    example = ROOT / "examples" / "plain_loop.py"
    code = [line for line in example.read_text().splitlines() if line.strip() and not line.startswith('"""')]
    assert len(code) <= 32
    assert "spatial/constraint" in run(str(example), "3")


def test_the_readmes_code_runs(tmp_path):
    readme = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert blocks
    for block in blocks:
        run("-c", block, cwd=tmp_path)


@pytest.mark.parametrize("name", ["views.py", "step.py", "training.py"])
def test_benchmarks_run(name, tmp_path):
    run(str(ROOT / "benchmarks" / name), "--quick", "--out", str(tmp_path / "out.json"))
    assert (tmp_path / "out.json").stat().st_size > 100


def test_an_interrupted_benchmark_goes_on_with_the_next_case(tmp_path):
    out = tmp_path / "out.json"
    stood = {"name": "quick, cached", "lightly_simclr_images_per_second": 5.0}
    out.write_text(json.dumps({"rows": [stood], "seconds": 1000.0}))
    run(str(ROOT / "benchmarks" / "training.py"), "--quick", "--out", str(out))
    found = json.loads(out.read_text())
    assert found["seconds"] > 1000
    first, second = found["rows"]
    assert first == stood
    assert (second["name"], second["lightly_simclr_images_per_second"]) == ("quick", 5.0)

import pytest

from unweave.distributed import Place, this_process
from unweave.errors import UnweaveError
from unweave.training import LaunchConfig, launch
from unweave.training.launch import process_counts

TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "4", "WORLD_SIZE": "8", "RANK": "5", "LOCAL_RANK": "1"}
SLURM = {
    "SLURM_NTASKS": "8", "SLURM_NNODES": "2", "SLURM_JOB_NAME": "train", "SLURM_PROCID": "5", "SLURM_LOCALID": "1",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _bare(monkeypatch):
    for name in (*TORCHRUN, *SLURM):
        monkeypatch.delenv(name, raising=False)


def test_without_a_launcher():
    assert process_counts(None, None) == (1, 1)
    assert process_counts(8, 4) == (8, 4)
    assert this_process() == Place(0, 1, 0)


@pytest.mark.parametrize("environment", [TORCHRUN, SLURM])
def test_torchrun_and_slurm_determine_the_number_of_processes(monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert process_counts(None, None) == (4, 2)
    assert process_counts(4, 2) == (4, 2)
    assert this_process() == Place(rank=5, count=8, local_rank=1)
    with pytest.raises(UnweaveError, match=r"`devices` is 3, but .* has started 4"):
        process_counts(3, None)


def test_a_shell_inside_a_slurm_allocation_is_not_a_task(monkeypatch):
    for name, value in {**SLURM, "SLURM_JOB_NAME": "bash"}.items():
        monkeypatch.setenv(name, value)
    assert process_counts(None, None) == (1, 1)
    assert this_process() == Place(0, 1, 0)


def test_tasks_that_do_not_divide(monkeypatch):
    for name, value in {**SLURM, "SLURM_NTASKS": "7"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UnweaveError, match="ntasks-per-node"):
        process_counts(None, None)


@pytest.mark.parametrize(
    ("accelerator", "gpu", "bfloat16", "expected"),
    [
        ("auto", True, False, "bf16-mixed"),
        ("auto", False, False, "32-true"),
        ("auto", False, True, "bf16-mixed"),
        ("cpu", True, False, "32-true"),
        ("cpu", True, True, "bf16-mixed"),
    ],
)
def test_bfloat16_where_the_device_has_units_for_it(monkeypatch, accelerator, gpu, bfloat16, expected):
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    monkeypatch.setattr(launch, "cpu_has_bfloat16", lambda: bfloat16)
    assert launch.automatic_precision(accelerator) == expected


@pytest.mark.parametrize("settings", [{"accelerator": "quantum"}, {"strategy": "telepathy", "accelerator": "cpu"}])
def test_what_fabric_does_not_know_is_one_line(settings):
    with pytest.raises(UnweaveError, match="cannot be started") as error:
        LaunchConfig(**settings).start()
    assert "\n" not in str(error.value)

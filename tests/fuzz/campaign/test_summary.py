"""What a campaign says of itself, in numbers."""

from records import record

from fuzz.campaign.record import ENOUGH, Cell
from fuzz.campaign.summary import NAMED, covered, rates


def test_rates_count_what_was_answered() -> None:
    """An unknown proof, and a launch whose values nobody compared, are not counted as judged."""
    records = [
        record("a"),
        record("a", subject="k2", status="unknown"),
        record("a", oracle="simulator", subject="k own launch"),
        record("a", oracle="differential", subject="own launch"),
        record("b", oracle="simulator", subject="k own launch"),
    ]
    said = rates(records, 2.0)
    assert said.startswith("2 cases (1.00), 1 kernels proved (0.50), 1 calls compared (0.50)")
    assert "1 kernels x extents judged (0.50)" in said
    assert "GPU" not in said


def test_rates_of_a_gpu_count_its_calls() -> None:
    """Each call that passes or fails counts once; one that it was not asked for does not."""
    records = [
        record("a", oracle="gpu", subject="launch 0"),
        record("a", oracle="gpu", subject="launch 1", status="fail"),
        record("a", oracle="gpu", subject="enlarged", status="unknown"),
    ]
    assert "2 calls on the GPU (1.00); in brackets per second" in rates(records, 2.0)


def test_cells_of_few_cases_are_counted_and_those_of_none_named() -> None:
    """As many as are wanted are enough; no more than a few are named."""
    cells: dict[Cell, int] = {("operation", f"op{n}", "f32"): ENOUGH for n in range(3)}
    assert covered(cells) == "coverage: 3 of 3 legal cells in 20 cases or more, the rarest in 20"
    cells["schedule", "bulk/direct", "5-8"] = ENOUGH - 1
    assert covered(cells) == "coverage: 3 of 4 legal cells in 20 cases or more, the rarest in 19"
    cells["schedule", "bulk/direct", "2"] = 0
    assert covered(cells).endswith(
        "3 of 5 legal cells in 20 cases or more, 1 in none: schedule bulk/direct 2"
    )
    cells |= {("operation", "exp", str(n)): 0 for n in range(NAMED)}
    assert covered(cells).endswith("operation exp 4 and 1 more")

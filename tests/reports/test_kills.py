"""Who notices a broken sync: by family, by kind of change, one by one."""

from __future__ import annotations

import pandas as pd
from records import record
from reported import SPLIT, frame

from reports import kills
from reports.page import Share

BROKEN = "drop line 9: mbarrier_init(full, 1)"


def test_the_mutant_table_says_who_killed() -> None:
    """A blind judge is a failure of ours."""
    row = kills.kills(SPLIT).table.iloc[0]
    assert (row["prover"], row["simulator"], row["status"]) == ("survived", "killed", "fail")
    says = kills.mutants(SPLIT).says
    assert says.startswith("1 mutant: 0 killed by both judges, 0 redundant syncs, 1 past a blind")


def test_the_matrix_has_syncs_and_how_they_are_broken() -> None:
    """Killed by one judge only is not killed; a redundant sync is not counted."""
    rows = [
        record("a", oracle="mutant", reason="killed by both", mutant=BROKEN),
        record("b", oracle="mutant", reason="redundant: proved", mutant=BROKEN),
        record("c", oracle="mutant", status="fail", reason="only one", mutant=BROKEN),
        record("d", oracle="mutant", reason="killed by both", mutant="late line 2: warp_sync()"),
        record("e", oracle="mutant", reason="killed by both", mutant="nonsense"),
    ]
    section = kills.matrix(frame(*rows))
    table = section.table.set_index("sync")
    assert table.loc["mbarrier_init", "drop"] == Share(1, 2)
    assert table.loc["warp_sync", "late"] == Share(1, 1)
    assert pd.isna(table["drop"]["warp_sync"])
    assert section.says.startswith("Both judges kill 3 of 4 mutants")


def test_without_mutants_there_is_a_sentence() -> None:
    """A campaign may be told to make none."""
    for make in (kills.matrix, kills.mutants, kills.kills):
        assert make(frame(record("a"))).says == "No mutant was judged."

"""A record for tests, with any of its fields changed."""

from fuzz.campaign.record import Record


def record(case: str, **changes: object) -> Record:
    """A record of a case."""
    values: dict[str, object] = {
        "oracle": "prover",
        "subject": "k",
        "status": "pass",
        "checked": 3,
        "seconds": 0.5,
        "kind": "",
        "reason": "",
        "family": "direct/tma",
        "load": "direct",
        "store": "tma",
        "stages": 1,
        "values": "reals",
    }
    return Record(case, **{**values, **changes})  # type: ignore[arg-type]  # any field

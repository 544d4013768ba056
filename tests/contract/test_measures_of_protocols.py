"""How every protocol is evaluated: by sums of one pass, by more passes, or from all records.

The table of the page on large populations; what it says is counted on the protocols' examples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from walked_users import Walked

from fedhist.base.arrays import Array
from fedhist.model.measures import by_records, first_pass, measured
from fedhist.model.registry import protocol_class
from fedhist.protocols import BoundedHistogram
from fedhist.users.batch import Users

ONE = "sums, made in the pass in which users answer"
ERROR = "one more pass for the predicted error"
ROWS = "one more pass for the predicted error, which keeps a row of at most a million users"
SEARCH = "some more passes, which look for quantiles"
DRAWS = "two more passes for each of 4 to 64 draws of keys; or one or two, where a clip is chosen"
SIMULATED = "thirty runs for the predicted error"
RECORDS = "all users' records at once: at most a million users"

HOW = {
    "adaptive-histogram": ERROR,
    "bounded-histogram": ONE,
    "box-mean": ONE,
    "central-density": ONE,
    "central-mean": SIMULATED,
    "cover-select": SIMULATED,
    "density": ERROR,
    "distribution": SIMULATED,
    "few-users-distribution": ONE,
    "few-users-mean": ONE,
    "frequency-oracle": ONE,
    "item-histogram": ONE,
    "local-distribution": SIMULATED,
    "local-histogram": SIMULATED,
    "local-quantiles": SEARCH,
    "mean": ROWS,
    "mean-l2": ERROR,
    "mean-linf": ONE,
    "naive-mean": SIMULATED,
    "poisson-counts": ONE,
    "quantiles": SEARCH,
    "ragged-distribution": SIMULATED,
    "sparse-mean": SIMULATED,
    "unbounded-histogram": DRAWS,
    "user-level-erm": ONE,
}
"""What the evaluation of a protocol takes, at its usual settings."""


def test_how_every_protocol_is_evaluated(protocol_name: str) -> None:
    cls = protocol_class(protocol_name)
    how = RECORDS if protocol_name.startswith("throwaway-") else HOW[protocol_name]
    protocol, users = cls.example(), cls.example_users()
    assert (protocol.measure() is None) == by_records(protocol) == (how == RECORDS)
    if how == RECORDS:
        return
    walk = Walked(users, 50)
    blocks = sum(1 for _ in walk.blocks())

    def passes(name: str) -> float:
        """Count the passes that a part takes."""
        Walked.made = 0
        _ = getattr(known, name)
        return Walked.made / blocks

    Walked.made = 0
    known = measured(protocol, walk)
    assert Walked.made == blocks
    assert passes("diagnostics") == passes("support") == 0
    truth = passes("truth")
    assert (truth > 0) == (how == SEARCH)
    error = passes("error")
    if how == SIMULATED:
        assert error > 1
    elif how != SEARCH:
        draws = {2 * n for n in range(4, 65)}
        some = {ONE: {0}, ERROR: {1}, ROWS: {1}, DRAWS: draws}
        assert error in some[how]
    assert (how == ROWS) == ("rows" in vars(known))
    assert passes("lower_bounds") <= (how in (ROWS, ERROR, SIMULATED))
    assert passes("resolution") <= (how == SEARCH)


def test_a_derived_class_that_says_otherwise_is_asked() -> None:
    """What it does not say itself still comes from the measure."""

    @dataclass(frozen=True)
    class Halved(BoundedHistogram):
        def truth(self, users: Users) -> Array:
            return super().truth(users) / 2

    usual = BoundedHistogram.example()
    halved, users = Halved(**vars(usual)), usual.example_users()
    assert by_records(halved)
    assert not by_records(usual)
    assert first_pass(halved) is None
    known = measured(halved, users)
    assert np.array_equal(known.truth, usual.truth(users) / 2)
    assert known.error == usual.error(users)

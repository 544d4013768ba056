"""How every protocol is evaluated: by sums of one pass, by more passes, or from all records.

Counted on the protocols' examples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from walked_users import Walked

from fedhist.base.arrays import Array
from fedhist.model.evaluation import by_records, first_pass, measured
from fedhist.model.registry import protocol_class
from fedhist.protocols import BoundedHistogram
from fedhist.users.batch import Users
from server import predictor

SEARCH = {"local-quantiles", "quantiles"}
"""Their truth takes more passes, which look for quantiles."""


def test_how_every_protocol_is_evaluated(
    protocol_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pass for truth and diagnostics; the predicted error takes thirty runs, or none."""
    cls = protocol_class(protocol_name)
    protocol, users = cls.example(), cls.example_users()
    if protocol_name.startswith("throwaway-"):
        assert by_records(protocol)
        return
    assert not by_records(protocol)
    walk = Walked(users, 50)
    blocks = sum(1 for _ in walk.blocks())

    def passes(name: str) -> float:
        """Count the passes that a part takes."""
        Walked.made = 0
        _ = getattr(known, name)
        return Walked.made / blocks

    monkeypatch.setattr(predictor, "_predicted", {})  # other tests may have asked before
    Walked.made = 0
    known = measured(protocol, walk)
    assert Walked.made == blocks
    assert passes("diagnostics") == passes("support") == 0
    assert (passes("truth") > 0) == (protocol_name in SEARCH)
    error = passes("error")
    assert (error == 0) == (known.error.kind != "simulated")
    assert passes("lower_bounds") <= 1
    assert passes("resolution") <= (protocol_name in SEARCH)
    whole = measured(protocol, users)
    assert known.diagnostics == pytest.approx(whole.diagnostics)
    np.testing.assert_allclose(known.truth, whole.truth, rtol=1e-9)


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

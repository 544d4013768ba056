"""How every protocol is evaluated: by sums of one pass, by more passes, or from all records.

Counted on the protocols' examples.
"""

from __future__ import annotations

import numpy as np
import pytest
from walked_users import Walked

from fedhist.model.evaluation import by_records, measured
from fedhist.model.registry import protocol_class
from server import predictor

SEARCH = {"local-quantiles", "quantiles"}
"""Their truth takes more passes, which look for quantiles."""


def test_how_every_protocol_is_evaluated(
    protocol_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = protocol_class(protocol_name)
    protocol, users = cls.example(), cls.example_users()
    if protocol_name.startswith("throwaway-"):
        assert by_records(protocol)
        return
    assert not by_records(protocol)
    walk = Walked(users, 50)
    blocks = sum(1 for _ in walk.blocks())

    def passes(name: str) -> float:
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

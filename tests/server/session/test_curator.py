"""The Curator: charges before it draws, journals, never draws twice; its mechanisms' exact laws."""

import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import fedhist as fh
from fedhist.privacy.guarantee import gaussian_multiplier
from fedhist.privacy.ledger import Ledger
from server.noise import SimulatedNoise
from server.session.curator import NoiseSource
from server.session.journal import Journal
from server.session.unknown_keys import laplace_key_threshold, printed_key_threshold
from tests.running import recorded


class Recorded(NoiseSource):
    """Noise of fixed values, remembering what was asked for."""

    grade = "simulated"

    def __init__(self, value: float = 0.0) -> None:
        self.value, self.calls = value, list[tuple[str, Any]]()

    def _give(self, kind: str, shape: tuple[int, ...], scale: float, dtype: type) -> Any:
        self.calls.append((kind, scale))
        return np.full(shape, self.value, dtype)

    def laplace(self, shape: tuple[int, ...], scale: float) -> Any:
        return self._give("laplace", shape, scale, float)

    def gaussian(self, shape: tuple[int, ...], std: float) -> Any:
        return self._give("gaussian", shape, std, float)

    def discrete_laplace(self, shape: tuple[int, ...], scale: float) -> Any:
        return self._give("discrete_laplace", shape, scale, np.int64)

    def discrete_gaussian(self, shape: tuple[int, ...], std: float) -> Any:
        return self._give("discrete_gaussian", shape, std, np.int64)

    def exponential(self, logits: Any) -> int:
        self.calls.append(("exponential", logits))
        return int(np.argmax(logits))


class Broken(Recorded):
    """Fails instead of drawing."""

    def _give(self, kind: str, shape: tuple[int, ...], scale: float, dtype: type) -> Any:
        raise OSError("no entropy")

    def exponential(self, logits: Any) -> int:
        raise OSError("no entropy")


def guarantee(epsilon: float = 1.0, delta: float = 1e-6) -> fh.Guarantee:
    return fh.Guarantee(epsilon, delta, fh.Trust.CENTRAL, fh.Adjacency.ZERO_OUT_USER)


def curator(
    noise: NoiseSource, epsilon: float = 1.0, delta: float = 1e-6, journal: Journal | None = None
) -> fh.Curator:
    return fh.Curator(Ledger(guarantee(epsilon, delta)), lambda i: noise, journal or Journal())


PART = fh.Keyed(fh.Keys.of(["a", "b"]), np.array([400, 500]))
SCALES = {
    "laplace": ("laplace", 2.0),
    "gaussian": ("gaussian", 2 * gaussian_multiplier(1.0, 1e-6)),
    "gaussian_zcdp": ("gaussian", 2 * math.sqrt(0.5 / fh.zcdp_rho(1.0, 1e-6))),
    "discrete_laplace": ("discrete_laplace", 2.0),
    "discrete_gaussian": ("discrete_gaussian", math.hypot(2 * gaussian_multiplier(1.0, 1e-6), 2.0)),
    "threshold": ("discrete_laplace", 2.0),
}


def release(name: str, server: fh.Curator, epsilon: float = 1.0, size: float = 2.0) -> Any:
    """Release two entries by the mechanism of that name."""
    if name == "threshold":
        return server.threshold(
            PART, contribution=2, l1_sensitivity=int(size), epsilon=epsilon, delta=1e-6
        ).values
    if name == "exponential":
        return server.exponential([1.0, 2.0], sensitivity=size, epsilon=epsilon)
    given = {"l1_sensitivity" if "laplace" in name else "l2_sensitivity": size}
    if name == "gaussian_zcdp":
        given["rho"] = fh.zcdp_rho(1.0, 1e-6) if epsilon == 1.0 else epsilon
    else:
        given["epsilon"] = epsilon
    if name in ("gaussian", "discrete_gaussian"):
        given["delta"] = 1e-6
    value = [1, 2] if name.startswith("discrete") else [1.0, 2.0]
    return getattr(server, name)(value, **given)


each_release = pytest.mark.parametrize("name", ["exponential", *SCALES])


@each_release
def test_draws_with_the_right_scale_and_spends_it_all(name: str) -> None:
    noise = Recorded(7)
    server = curator(noise)
    value = release(name, server)
    assert server.ledger.spent().epsilon == pytest.approx(1.0, rel=1e-6)
    ((kind, scale),) = noise.calls
    if name == "exponential":
        assert np.allclose(scale, [-0.25, 0.0])  # epsilon (s - max s) / (2 sensitivity)
        assert value == 1
        return
    assert (kind, scale) == (SCALES[name][0], pytest.approx(SCALES[name][1]))
    base = [400, 500] if name == "threshold" else [1, 2]
    assert value.tolist() == [base[0] + 7, base[1] + 7]
    assert value.dtype == (np.float64 if kind in ("laplace", "gaussian") else np.int64)


@each_release
def test_charges_before_it_draws(name: str) -> None:
    """A noise source that fails leaves the charge: what may have leaked is paid for."""
    journal = Journal()
    server = curator(Broken(), journal=journal)
    with pytest.raises(OSError, match="no entropy"):
        release(name, server)
    assert server.ledger.spent().epsilon == pytest.approx(1.0, rel=1e-6)
    assert journal.find("release", 0) is None


@each_release
def test_a_refusal_draws_nothing(name: str) -> None:
    noise, journal = Recorded(), Journal()
    server = curator(noise, epsilon=0.99, journal=journal)
    with pytest.raises(fh.BudgetExceeded, match=r"0\.99"):
        release(name, server)
    assert noise.calls == []
    assert server.ledger.entries == ()
    assert journal.find("release", 0) is None


@each_release
def test_never_draws_twice(name: str) -> None:
    journal = Journal()
    first = release(name, curator(Recorded(3), journal=journal))
    noise = Recorded(99)
    again = curator(noise, journal=journal)
    second = release(name, again)
    assert np.array_equal(first, second)
    assert np.asarray(first).dtype == np.asarray(second).dtype
    assert noise.calls == []
    assert again.ledger.spent().epsilon == pytest.approx(1.0, rel=1e-6)  # charged all the same


def test_a_line_that_is_not_on_disk_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    with monkeypatch.context() as full:
        full.setattr("fedhist.base.files.os.fsync", Mock(side_effect=OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            journal.append({"kind": "ended", "index": 0})
    assert journal.find("ended", 0) is None


def test_a_journal_of_another_script_is_refused() -> None:
    journal = Journal()
    release("laplace", curator(Recorded(), journal=journal))
    with pytest.raises(fh.FedhistError, match="another run"):
        release("exponential", curator(Recorded(), journal=journal))


@each_release
def test_without_noise(name: str) -> None:
    server = curator(Broken(), epsilon=math.inf)
    wanted = {"exponential": 1, "threshold": [400, 500]}.get(name, [1, 2])
    assert np.array_equal(release(name, server, math.inf), wanted)
    assert math.isinf(server.ledger.spent().epsilon)


def test_charges_the_cohort_in_hand() -> None:
    server = curator(Recorded())
    for lo in (0.0, 0.5):
        server.cohort = fh.Cohort(1, lo, lo + 0.5)
        release("laplace", server)
    assert server.ledger.spent().epsilon == 1.0
    server.cohort = None
    with pytest.raises(fh.BudgetExceeded):
        release("laplace", server)


def test_published_thresholds() -> None:
    assert fh.key_threshold(10, 10, 1.0, 1e-6) == 156
    assert fh.key_threshold(10, 20, 1.0, 1e-6) == 310
    assert fh.key_threshold(10, 20, 1.0, 0.5e-6) == 324  # what halving delta would cost
    assert printed_key_threshold(10, 1.0, 1e-6) == pytest.approx(164.25, abs=0.005)
    # zeroing out: max(C + b ln(1 / 2 delta), 1 + b ln(C / 2 delta)); b doubles under replacement
    for c, b, sensitivity in ((10, 10.0, 10), (10, 20.0, 20), (1, 1.0, 1), (3, 3.0, 3)):
        one, many = c - b * math.log(2e-6), 1 + b * math.log(c / 2e-6)
        assert laplace_key_threshold(c, sensitivity, 1.0, 1e-6) == pytest.approx(max(one, many))
    for at in (fh.key_threshold, laplace_key_threshold):
        assert at(10, 20, math.inf, 1e-6) == 1
        with pytest.raises(ValueError, match="delta > 0, got 0"):
            at(10, 10, 1.0, 0.0)
    assert printed_key_threshold(10, math.inf, 1e-6) == 1


def test_threshold_release_keeps_what_reaches_the_threshold() -> None:
    t = fh.key_threshold(2, 2, 1.0, 1e-6)
    counts = np.array([t - 5, t - 6, 0, t + 9])
    part = fh.Keyed(fh.Keys.of(["b", "é", "none", ""]), counts)
    for noise, kept in ((5, ["b", ""]), (6, ["b", "é", ""]), (4, [""])):
        server = curator(Recorded(noise))
        got = server.threshold(part, contribution=2, l1_sensitivity=2, epsilon=1.0, delta=1e-6)
        assert list(got.keys) == kept
        wanted = dict(zip(part.keys, counts + noise, strict=True))
        assert got.values.tolist() == [wanted[k] for k in kept]


def test_threshold_draws_on_the_support_only() -> None:
    """A key with count zero gets no noise: it can never appear."""
    part = fh.Keyed(fh.Keys.of(["none"]), np.array([0]))
    server = curator(Recorded(10**6))
    got = server.threshold(part, contribution=1, l1_sensitivity=1, epsilon=1.0, delta=1e-6)
    assert len(got.keys) == 0


def test_threshold_release_with_real_noise_gives_real_values() -> None:
    t = laplace_key_threshold(2, 2, 1.0, 1e-6)
    part = fh.Keyed(fh.Keys.of(["b", "é", "none"]), np.array([math.ceil(t), math.floor(t), 0]))
    noise = Recorded(0.25)
    journal = Journal()
    release: dict[str, Any] = dict(
        contribution=2, l1_sensitivity=2, epsilon=1.0, delta=1e-6, noise="laplace"
    )
    got = curator(noise, journal=journal).threshold(part, **release)
    assert noise.calls == [("laplace", 2.0)]
    assert list(got.keys) == ["b"] if math.floor(t) + 0.25 < t else ["b", "é"]
    assert got.values.dtype == np.float64
    assert got.values[0] == math.ceil(t) + 0.25
    again = curator(Broken(), journal=journal).threshold(part, **release)  # from the journal
    assert list(again.keys) == list(got.keys)
    assert np.array_equal(again.values, got.values)
    with pytest.raises(ValueError, match="noise must be one of discrete, laplace, got 'gaussian'"):
        curator(noise).threshold(part, **{**release, "noise": "gaussian"})


def test_the_printed_release_is_charged_as_not_private() -> None:
    """It puts noise on keys that nobody sent: one of them may appear."""
    part = fh.Keyed(fh.Keys.of(["sent", "clipped away"]), np.array([1, 0]))
    release: dict[str, Any] = dict(
        contribution=2, l1_sensitivity=2, epsilon=1.0, delta=1e-6, noise="laplace", as_printed=True
    )
    server = curator(Recorded(1000.0), epsilon=math.inf)
    got = server.threshold(part, **release)
    assert list(got.keys) == ["sent", "clipped away"]
    assert got.values.tolist() == [1001.0, 1000.0]
    assert math.isinf(server.ledger.spent().epsilon)
    with pytest.raises(fh.BudgetExceeded):
        curator(Recorded(), epsilon=100.0).threshold(part, **release)
    for noise, kept in ((0.001, 1), (-0.001, 0)):  # the count of "sent" is 1 more
        t = printed_key_threshold(2, 1.0, 1e-6)
        server = curator(Recorded(t - 1 + noise), epsilon=math.inf)
        assert len(server.threshold(part, **release).keys) == kept


Law = dict[Any, float]
STEP = 0.5
"""Width of the cells of real-valued outcomes, where the likelihood ratio is not constant."""


def real_outcome_law(count: int, other: int, threshold: float, b: float) -> Law:
    """The same with real-valued noise; values between threshold and the larger count in cells."""
    if count == 0:
        return {"absent": 1.0}

    def below(x: float) -> float:
        """P(noise < x)."""
        return 0.5 * math.exp(x / b) if x < 0 else 1 - 0.5 * math.exp(-x / b)

    top = max(count, other, threshold)
    edges = [threshold + STEP * k for k in range(math.ceil((top - threshold) / STEP))] + [top]
    law: Law = {"absent": below(threshold - count), "large": 1 - below(top - count)}
    law |= {x: below(y - count) - below(x - count) for x, y in itertools.pairwise(edges)}
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-12)
    return law


def outcome_law(count: int, other: int, threshold: int, b: float) -> Law:
    """Law of one key's release at a count; values from the larger count on are one outcome."""
    if count == 0:
        return {"absent": 1.0}
    alpha = math.exp(-1 / b)

    def at_least(k: int) -> float:
        """P(noise >= k)."""
        return alpha**k / (1 + alpha) if k >= 1 else 1 - alpha ** (1 - k) / (1 + alpha)

    top = max(count, other, threshold)
    law: Law = {"absent": 1 - at_least(threshold - count), "large": at_least(top - count)}
    law |= {v: (1 - alpha) / (1 + alpha) * alpha ** abs(v - count) for v in range(threshold, top)}
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-12)
    return law


def exact_delta(
    one: list[int], two: list[int], epsilon: float, threshold: float, b: float
) -> float:
    """Sum over outcomes of max(0, P - e^epsilon Q), by enumeration."""
    of: Callable[..., Law] = outcome_law if isinstance(threshold, int) else real_outcome_law
    laws = [(of(x, y, threshold, b), of(y, x, threshold, b)) for x, y in zip(one, two, strict=True)]
    delta = 0.0
    for outcome in itertools.product(*(p.keys() for p, _ in laws)):
        p = math.prod(law[o] for o, (law, _) in zip(outcome, laws, strict=True))
        q = math.prod(law.get(o, 0.0) for o, (_, law) in zip(outcome, laws, strict=True))
        delta += max(0.0, p - math.exp(epsilon) * q)
    return delta


def records(total: int, keys: int) -> Iterator[tuple[int, ...]]:
    """All records of at most ``total`` over so many keys."""
    for x in itertools.product(range(total + 1), repeat=keys):
        if sum(x) <= total:
            yield x


def on_backgrounds(*records: tuple[int, ...], counts: Any) -> Iterator[list[list[int]]]:
    """Totals by key where the user has either record and the others have these counts of each."""
    for others in itertools.product(sorted(counts), repeat=len(records[0])):
        cells = list(zip(*records, others, strict=True))
        if cells == sorted(cells):
            yield [[a + o for a, o in zip(x, others, strict=True)] for x in records]


@pytest.mark.parametrize(("contribution", "epsilon"), [(1, 1.0), (2, 0.5), (2, 2.0), (3, 1.0)])
@pytest.mark.parametrize("delta", [1e-4, 0.3])
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("real", [False, True])
def test_the_threshold_release_is_as_private_as_it_says(
    contribution: int, epsilon: float, delta: float, replaced: bool, real: bool
) -> None:
    """(epsilon, delta)-DP over records and backgrounds, in both directions; tight in t."""
    c, moved = contribution, contribution * (1 + replaced)
    t = (laplace_key_threshold if real else fh.key_threshold)(c, moved, epsilon, delta)
    rows, near = list(records(c, min(moved, 4))), max(math.ceil(t) - 1, 1)
    counts = {0, near} if replaced and c > 1 else {0, 1, near, near + 1}
    worst = 0.0
    for x in rows:
        for y in rows if replaced else [(0,) * len(x)]:
            for pair in on_backgrounds(x, y, counts=counts):
                for p, q in (pair, pair[::-1]):
                    worst = max(worst, exact_delta(p, q, epsilon, t, moved / epsilon))
    assert worst <= delta * (1 + 1e-9)
    if t >= c:
        assert worst > (delta * (1 - delta) if real else 0.3 * delta)


def test_a_gaussian_series_ends() -> None:
    server = curator(Recorded())
    release = server.gaussian_series(1, epsilon=1.0, delta=1e-6)
    release(np.zeros(1), 1.0)
    with pytest.raises(fh.BudgetExceeded):
        release(np.zeros(1), 1.0)
    with pytest.raises(ValueError, match="0"):
        server.gaussian_series(0, epsilon=1.0, delta=1e-6)


def test_a_gaussian_series_with_shares() -> None:
    """1 / std^2 add up to those of one release; the wrong number or sum of shares is refused."""
    server = fh.Curator(Ledger(guarantee()), lambda i: SimulatedNoise(5, i), Journal())
    z = gaussian_multiplier(1.0, 1e-6)
    release = server.gaussian_series(2, epsilon=1.0, delta=1e-6, shares=(0.25, 0.75))
    many = np.zeros(40_000)
    # a standard deviation of 40,000 normals is within 2 %: 5.6 standard errors
    assert release(many, 1.0).std() == pytest.approx(z / 0.5, rel=0.02)
    assert release(many, 1.0).std() == pytest.approx(z / math.sqrt(0.75), rel=0.02)
    for shares in ((1.0,), (0.5, 0.6), (0.0, 1.0)):  # before anything is charged
        with pytest.raises(ValueError, match="shares"):
            server.gaussian_series(2, epsilon=1.0, delta=1e-6, shares=shares)


def test_a_discrete_gaussian_series_is_one_of_the_two_in_all_its_rounds() -> None:
    """Integers that move by 3: rounded Gaussians. By a small part of a step: zCDP, to the end."""
    z, zcdp = gaussian_multiplier(1.0, 1e-6), math.sqrt(0.5 / fh.zcdp_rho(1.0, 1e-6))
    for sizes, wanted in (
        ((3.0, 0.1), [math.hypot(6 * z, 2), math.hypot(0.2 * z, 2)]),
        ((0.1, 3.0), [0.2 * zcdp, 6 * zcdp]),
        ((0.0, 3.0), [0.0, math.hypot(6 * z, 2)]),
    ):
        noise, drawn = recorded("discrete_gaussian")
        server = fh.Curator(Ledger(guarantee()), noise, Journal())
        release = server.gaussian_series(4, epsilon=1.0, delta=1e-6, discrete=True)
        for size in sizes:
            release(np.zeros(3, dtype=np.int64), size)
        assert [z for _, z in drawn] == pytest.approx([w for w in wanted if w], rel=1e-12)
        assert server.ledger.spent().epsilon <= 1.0 + 1e-9


@each_release
@pytest.mark.parametrize("bad", [-1.0, 0.0, math.nan, math.inf])
def test_bad_epsilons_and_sensitivities_charge_nothing(name: str, bad: float) -> None:
    server = curator(Recorded(), epsilon=math.inf)
    if bad != math.inf:
        with pytest.raises(ValueError, match=f"got {bad}"):
            release(name, server, bad)
    if bad != 0.0 and name != "threshold":
        with pytest.raises(ValueError, match=f"got {bad}"):
            release(name, server, 1.0, bad)
    assert server.ledger.entries == ()


def test_values_that_a_mechanism_does_not_take_are_refused() -> None:
    server = curator(Recorded())
    with pytest.raises(ValueError, match="float64"):
        server.discrete_laplace([1.5], l1_sensitivity=1, epsilon=1)
    with pytest.raises(ValueError, match="float64"):
        server.discrete_gaussian([1.5], l2_sensitivity=1, epsilon=1, delta=1e-6)
    with pytest.raises(ValueError, match="l1_sensitivity"):
        server.threshold(PART, contribution=2, l1_sensitivity=3, epsilon=1, delta=1e-6)
    for scores in ([], [[1.0]], [math.nan], [math.inf]):
        with pytest.raises(ValueError, match="finite"):
            server.exponential(scores, sensitivity=1, epsilon=1)
    assert server.ledger.entries == ()

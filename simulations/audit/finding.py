"""Finding: what one check of the auditor says about one claim, whatever the kind of the check."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

from fedhist.base.checks import check_integer, check_size, check_within
from simulations.audit.bounds import ALPHA

Kind = Literal["exact", "statistical", "end to end", "structural", "wire"]
Verdict = Literal["consistent", "violation"]


@dataclass(frozen=True)
class Witness:
    """Why a claim is thought to be broken, so that somebody else can check it.

    Attributes
    ----------
    inputs : (str, str)
        The two records, or populations, in words.
    event : str
        The set of outputs that tells them apart, in words.
    hits : (int, int)
        How often it happened under each input on the certifying draws.
    draws : (int, int)
        How many these were; (0, 0) where the law itself was enumerated.
    """

    inputs: tuple[str, str]
    event: str
    hits: tuple[int, int] = (0, 0)
    draws: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Finding:
    """One check of one claim.

    Attributes
    ----------
    subject : str
        What was checked: a protocol, or one query of it ("mean: scalar-reports").
    kind : str
        How. "exact": the law was enumerated. "statistical": events counted on independent answers.
        "end to end": on whole runs. "structural", "wire": something that no privacy claim allows
        was seen as such.
    epsilon, delta : float
        The claim.
    certified : float
        Lower bound of epsilon at ``delta``; inf where no epsilon holds.
    confidence : float
        Probability of at least this that ``certified`` is no larger than the true epsilon; 1 for
        what was enumerated or proved.
    verdict : {"consistent", "violation"}
        "consistent" says that nothing was found, not that the claim is true; unless the kind is
        "exact", where it is proved for the inputs that were enumerated.
    witness : Witness or None
        Of the certified bound; a violation always has one.
    curve : tuple of (epsilon, delta)
        What is certified about delta at other values of epsilon (empty: not computed).
    seconds : float
        Whole time of the check.
    draws : int
        Independent answers (or runs) made.
    note : str
        What a reader should know: what was enumerated, what was left out.
    excess : float
        By how much of itself e^epsilon is exceeded by the largest likelihood ratio, where that was
        enumerated at delta = 0; else 0.
    """

    subject: str
    kind: Kind
    epsilon: float
    delta: float
    certified: float
    confidence: float
    verdict: Verdict
    witness: Witness | None = None
    curve: tuple[tuple[float, float], ...] = ()
    seconds: float = 0.0
    draws: int = 0
    note: str = ""
    excess: float = 0.0

    @property
    def violated(self) -> bool:
        """Whether a violation is proved."""
        return self.verdict == "violation"

    @property
    def rounded(self) -> bool:
        """Whether the claim is exceeded, by no more than rounding."""
        return self.excess > 0 and not self.violated


@dataclass(frozen=True)
class Settings:
    """What every auditor is given beside the protocol.

    Attributes
    ----------
    effort : float
        Multiplies the numbers of draws and runs; 1 is the default budget.
    seed : int
        Of the auditor's own choices and of the simulated noise.
    alpha : float
        Error probability of one finding.
    records : tuple
        Two records of one user to compare in place of a search: item counts by name, or rows of
        samples; empty: search.
    """

    effort: float = 1.0
    seed: int = 0
    alpha: float = ALPHA
    records: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        check_size("effort", self.effort)
        check_integer("seed", self.seed, least=0)
        check_within("alpha", self.alpha, 0, 1, "()")
        if len(self.records) not in (0, 2):
            raise ValueError(f"two records are compared, got {len(self.records)}")


@dataclass
class Case:
    """What is being looked into: what is claimed, how it is tested, what that has cost so far.

    ``subject``, ``kind``, ``claim``, ``note``: as a :class:`Finding` has them; the claim is
    (epsilon, delta); ``started``: when, by ``time.perf_counter``; ``draws``: answers drawn so far.
    """

    subject: str
    claim: tuple[float, float]
    settings: Settings = field(default_factory=Settings)
    kind: Kind = "statistical"
    note: str = ""
    started: float = field(default_factory=time.perf_counter)
    draws: int = 0

    def found(
        self, certified: float, confidence: float, witness: Witness | None = None, **more: Any
    ) -> Finding:
        """Say "violation" exactly if more than the claimed epsilon is certified.

        ``more``: other attributes of the finding, or these.

        Examples
        --------
        >>> Case("mean", (1.0, 0.0)).found(0.9, 0.999).verdict
        'consistent'
        """
        epsilon, delta = self.claim
        said: dict[str, Any] = {
            "kind": self.kind,
            "verdict": "violation" if certified > epsilon else "consistent",
            "seconds": time.perf_counter() - self.started,
            "draws": self.draws,
            "note": self.note,
        }
        return Finding(
            subject=self.subject,
            epsilon=epsilon,
            delta=delta,
            certified=certified,
            confidence=confidence,
            witness=witness,
            **said | more,
        )

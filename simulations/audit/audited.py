"""A finished audit as an object: what every check found, as a table, witnesses and curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedhist.base.errors import FedhistError
from fedhist.model.protocol import Protocol
from fedhist.privacy.guarantee import Trust, approximate, chance_of_telling
from simulations.audit.bounds import claimed_delta
from simulations.audit.checks import audit_protocol
from simulations.audit.finding import Finding, Settings
from simulations.reporting.files import plain
from simulations.reporting.pictures import BLUE, ORANGE
from simulations.reporting.shown import NoFigureError, Shown
from simulations.reporting.table import BAD, Marked, Table, numeric, worded

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 3
ADVICE = "round towards 1/2 to remove it"
DOUBLES = 1e-12
"""Excess up to which a law's author has computed with doubles rather than made a mistake."""


@dataclass(frozen=True, repr=False)
class Audited(Shown):
    """What an audit found.

    ``findings``: at least one; ``alpha``: error probability of each check that draws.
    """

    kind: ClassVar[str] = "audit"
    not_private: ClassVar[str] = ""  # records are made up

    findings: tuple[Finding, ...]
    alpha: float

    @property
    def violated(self) -> bool:
        """Whether a violation is proved."""
        return any(f.violated for f in self.findings)

    @property
    def title(self) -> str:
        names = dict.fromkeys(f.subject.partition(":")[0] for f in self.findings)
        bad = sum(f.violated for f in self.findings)
        verdict = f"VIOLATION in {bad} of {len(self.findings)} checks" if bad else "consistent"
        return f"{', '.join(names)}: {verdict}"

    def tables(self) -> Sequence[Table]:
        return [findings_table(self.findings, self.alpha)]

    def sections(self) -> Sequence[tuple[str, Sequence[str]]]:
        """Return every violation with its witness."""
        broken = (f for f in self.findings if f.violated)
        return [(f"VIOLATION {f.subject} ({f.kind})", witness_lines(f)) for f in broken]

    def document(self) -> dict[str, Any]:
        """Return what was found as plain data."""
        findings = [plain(asdict(f)) for f in self.findings]
        return {"kind": self.kind, "alpha": self.alpha, "findings": findings}

    def draw(self, figure: Figure) -> None:
        """Draw, for every finding with a curve, the largest delta claimed and the least proved."""
        shown = [f for f in self.findings if f.curve]
        if not shown:
            raise NoFigureError(f"no check of {self.title} has a curve to draw")
        columns = max(1, min(COLUMNS, int(figure.get_figwidth() / 2.3)))
        rows = math.ceil(len(shown) / columns)
        figure.set_figheight(0.5 + 2.3 * rows)
        axes = figure.subplots(rows, columns, squeeze=False).reshape(-1)
        for unused in axes[len(shown) :]:
            unused.set_axis_off()
        for panel, f in zip(axes, shown, strict=False):
            x, y = np.array(f.curve).T
            fine = np.linspace(0, x[-1], 200)
            claim = claimed_delta(fine, f.epsilon, f.delta)
            panel.plot(fine, claim, color=BLUE, label="claimed: at most")
            label = "enumerated" if f.kind == "exact" else "certified: at least"
            style = "--" if f.kind == "exact" else "o"
            panel.plot(x, y, style, color=ORANGE, markersize=3, linewidth=1, label=label)
            panel.set_title(f"{f.subject}\n{f.kind}: {f.verdict}", loc="left", fontsize=7)
            panel.set_xlabel("epsilon")
            panel.set_ylabel("delta")
            panel.legend(frameon=False, fontsize=6)


def audit_all(protocols: Iterable[Protocol], settings: Settings) -> Audited:
    """Audit some protocols.

    Raises ValueError for a protocol that promises nothing, an audit that broke off, and if no check
    applies.
    """
    findings: list[Finding] = []
    for p in protocols:
        if not p.guarantee.private:
            raise ValueError(f"{p.name} promises nothing here: {p.guarantee}")
        if p.guarantee.trust in (Trust.AGGREGATE, Trust.SHUFFLE):
            raise ValueError(
                f"{p.name} is under {p.guarantee.trust.value} trust, which no command attacks: "
                "fedhist's own protocols are held to it by its tests"
            )
        try:
            findings += audit_protocol(p, settings)
        except FedhistError as error:
            raise ValueError(f"the audit of {p.name} broke off: {error}") from error
    if not findings:
        raise ValueError("no check applies to what was named")
    return Audited(tuple(findings), settings.alpha)


def findings_table(findings: Sequence[Finding], alpha: float) -> Table:
    """Return a line per check: its claim, what is certified at least, the verdict."""
    rows = []
    for f in findings:
        claim = worded(f.epsilon, f"{f.epsilon:g}" + (f", {f.delta:g}" if f.delta else ""))
        fine = f"consistent (rounding {f.excess:.1g})" if f.rounded else "consistent"
        verdict = Marked("VIOLATION", BAD) if f.violated else fine
        rows.append((f.subject, f.kind, claim, f.certified, verdict))
    columns = ("what", "how", *numeric(("claimed", "at least"), write=_number), "verdict")
    return Table.of(columns, rows, notes=summary(findings, alpha))


def summary(findings: Sequence[Finding], alpha: float) -> list[str]:
    """Say what the words of the table mean, and what was drawn."""
    sampled = sum(f.confidence < 1 for f in findings)
    draws, seconds = sum(f.draws for f in findings), sum(f.seconds for f in findings)
    lines = [
        '"at least" is a lower bound of epsilon at the claimed delta: enumerated where the check '
        f"is exact, else certified with an error probability of {alpha:g} for each check, hence at "
        f'most {sampled * alpha:.2g} for these {len(findings)}. "consistent" says that no '
        "violation was found."
    ]
    if draws:
        lines.append(f"{draws:,} answers drawn; {seconds:.0f} s in all")
    for f in findings:
        if f.kind == "exact" and f.curve:  # delta at epsilon = 0 is the total variation
            allowed = chance_of_telling(approximate(f.epsilon, f.delta))
            lines.append(
                f"{f.subject}: who knows everything else tells two records apart with "
                f"{(1 + f.curve[0][1]) / 2:.1%} (enumerated); the claim allows {allowed:.1%}"
            )
    lines += [
        f"{f.subject} ({f.kind}): consistent (rounding {f.excess:.1g}; {ADVICE})"
        for f in findings
        if f.rounded
    ]
    return lines


def witness_lines(finding: Finding) -> list[str]:
    """Say what shows a violation: the inputs, the event, the counts."""
    w = finding.witness
    if w is None:
        return []
    lines = [f"more likely under  {w.inputs[0]}", f"less likely under  {w.inputs[1]}"]
    lines.append(f"event              {w.event}")
    if w.draws != (0, 0):
        counts = " and ".join(f"{h:,} of {n:,}" for h, n in zip(w.hits, w.draws, strict=True))
        lines.append(f"counts             {counts}")
    claim = f"({finding.epsilon:g}, {finding.delta:g})"
    sure = "" if finding.confidence == 1 else f", error probability {1 - finding.confidence:.1g}"
    lines.append(f"epsilon            at least {_number(finding.certified)}{sure}; claimed {claim}")
    lines.append(f"excess             {_excess_in_words(finding)}")
    return lines


def _excess_in_words(finding: Finding) -> str:
    """Say how far what was found lies beyond the claim."""
    beyond = finding.excess
    if math.isinf(finding.certified):
        return "no epsilon holds"
    if not beyond:
        return f"{_number(finding.certified - finding.epsilon)} of epsilon"
    if beyond < DOUBLES:
        return f"{beyond:.1g} of e^epsilon, the size of doubles' rounding: {ADVICE}"
    return f"{_number(finding.certified - finding.epsilon)} of epsilon, {beyond:.2g} of e^epsilon"


def _number(x: float) -> str:
    return "infinity" if math.isinf(x) else f"{x:.4g}"

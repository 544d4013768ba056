"""A finished audit as an object: what every check found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fedhist.base.errors import FedhistError
from fedhist.model.protocol import Protocol
from fedhist.privacy.guarantee import Trust
from simulations.audit.checks import audit_protocol
from simulations.audit.finding import Finding, Settings
from simulations.audit.report import draw_on, findings_table, summary, witness_lines, write_findings
from simulations.reporting.shown import NoFigureError, Shown
from simulations.reporting.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        told = [
            f"VIOLATION {f.subject} ({f.kind}): {'; '.join(witness_lines(f))}"
            for f in self.findings
            if f.violated
        ]
        notes = (*told, *summary(self.findings, self.alpha))
        return [replace(findings_table(self.findings), notes=notes)]

    def draw(self, figure: Figure) -> None:
        if not any(f.curve for f in self.findings):
            raise NoFigureError(f"no check of {self.title} has a curve to draw")
        draw_on(figure, self.findings)

    def write(self, folder: Path) -> None:
        write_findings(folder, self.findings, self.alpha)


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

"""What ``fedhist explain`` shows: words of the glossary, and the levels of trust on a screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console

from fedhist.privacy.aggregation import NOT_PROMISED
from fedhist.privacy.guarantee import Trust
from simulations.reporting.glossary import Entry, find, glossary
from simulations.reporting.table import Column, Table
from simulations.reporting.terminal import print_facts, print_lines, print_table


@dataclass(frozen=True)
class Level:
    """What there is to say of a level of trust.

    Attributes
    ----------
    believe, sees, noise : str
        Who must be honest; what the server sees; who adds the noise.
    facts : sequence of (str, str)
    not_promised : sequence of str
    """

    believe: str
    sees: str
    noise: str
    facts: Sequence[tuple[str, str]]
    not_promised: Sequence[str] = ()


LEVELS: Mapping[Trust, Level] = {
    Trust.CENTRAL: Level(
        "the server",
        "exact sums",
        "the server",
        (
            ("guarantee", "(epsilon, delta) per user for what the server publishes"),
            ("if broken", "nothing is left: the server has the sums, without noise"),
            ("worth it", "where somebody may hold the data anyway: the least error there is"),
        ),
    ),
    Trust.AGGREGATE: Level(
        "the aggregation, and all but a share tau of the nodes",
        "one sum per query",
        "the nodes",
        (
            (
                "what happens",
                "Each node adds a share of the noise to its integers, hides them under masks that "
                "cancel in the sum of all nodes, and sends them modulo 2^32 or 2^64.",
            ),
            (
                "premise",
                "Of N nodes at most a share tau_d drops out and at most tau_c colludes with the "
                "server. So M = N - floor(tau_d N) - floor(tau_c N) honest shares are in every "
                "sum; together they are all of the noise. A sum of fewer than N - floor(tau_d N) "
                "nodes is not unmasked.",
            ),
            (
                "error",
                "that of central trust times sqrt(U / M), U the nodes in the sum: 1.12 if all "
                "answer at the default tau_d = tau_c = 0.1",
            ),
            (
                "if broken",
                "Nothing is left: what one node adds is 1/M of the noise's variance, which "
                "protects nobody.",
            ),
            (
                "worth it",
                "from some ten nodes that have no common owner; for sums of integers "
                "(histograms, distributions, means). What chooses by exact scores is refused.",
            ),
            ("try it", 'fedhist compare trust; trust = "aggregate" in [protocol]'),
        ),
        NOT_PROMISED,
    ),
    Trust.SHUFFLE: Level(
        "a shuffler",
        "reports of a cohort, unsigned and unordered",
        "the users",
        (
            (
                "what happens",
                "Each user randomizes a report with a larger epsilon_0. A shuffler strips who, "
                "where from, when and in which order, and passes the reports of a cohort on: "
                "one hides among the others of the same law.",
            ),
            (
                "premise",
                "The shuffler does so, and n_min users of every cohort report who do not collude "
                "with the server. A smaller batch is withheld, and the run fails.",
            ),
            (
                "error",
                "3 to 14 times that of central trust, where local trust costs 27 to 300 times "
                "(docs/trust.md has the table)",
            ),
            (
                "if broken",
                "epsilon_0 is left, against the shuffler as well: every report is private by "
                "itself, at epsilon_0 = 5 or 6 hardly.",
            ),
            (
                "worth it",
                "for one report each of many users, thousands in every cohort. Under replacement "
                "only; rounds that ask a user again add up.",
            ),
            ("try it", 'fedhist compare trust; trust = "shuffle" in [protocol]'),
        ),
        (
            "that a cohort is larger than it is: n is a fold's or a phase's, never the total",
            "anything of sums over a node's few users: whole reports are shuffled",
            "that nobody learns who took part",
        ),
    ),
    Trust.LOCAL: Level(
        "nobody",
        "every user's report",
        "the users",
        (
            ("guarantee", "epsilon per user for what leaves the user"),
            ("if broken", "There is nothing to break but the user's own device."),
            ("worth it", "where nobody is believed, or users are very many: the most error"),
        ),
    ),
}


def show(console: Console, words: Sequence[str]) -> None:
    """Show what some words are: an entry of the glossary or a level of trust; none lists them."""
    if not words:
        print_levels(console)
        print_words(console)
        return
    asked = " ".join(words).removesuffix(" trust")
    known = [t.value for t in LEVELS]
    if asked in known:
        print_level(console, Trust(asked))
    else:
        print_word(console, find(asked, *known))


def print_words(console: Console) -> None:
    """List what else is explained."""
    print_lines(console, ["", f"Other words: {', '.join(glossary())}."])


def print_word(console: Console, entry: Entry) -> None:
    """Show an entry of the glossary."""
    console.print(entry.word, style="bold")
    means = entry.means.replace("`", "")
    facts = [("means", means), ("see", ", ".join(entry.see)), ("more", f"docs/{entry.page}")]
    print_facts(console, [(name, text) for name, text in facts if text])


def print_levels(console: Console) -> None:
    """Show the ladder, a line per level."""
    columns = (
        Column("trust", keep=True),
        *("who must be honest", "the server sees", "noise is added by"),
    )
    rows = [(t.value, v.believe, v.sees, v.noise) for t, v in LEVELS.items()]
    notes = ("fedhist explain WORD says more; fedhist compare trust measures them.",)
    print_table(console, Table.of(columns, rows, notes=notes))


def print_level(console: Console, trust: Trust) -> None:
    """Show all there is to say of a level."""
    level = LEVELS[trust]
    console.print(f"[bold]{trust.value} trust[/]: believe {level.believe}")
    facts = [("server sees", level.sees), ("noise", f"added by {level.noise}"), *level.facts]
    print_facts(console, facts)
    if level.not_promised:
        console.print("not promised", style="bold")
        columns = (Column(""), Column(""))
        print_table(console, Table.of(columns, [("-", line) for line in level.not_promised]))

"""Words of tweets: Sentiment140 [1]_ in its raw layout, as in the experiments of [2]_.

References
----------
.. [1] Go, Bhayani & Huang, "Twitter sentiment classification using distant supervision", 2009.
.. [2] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, section 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from fedhist.users.tables import TableFormat, existing, first_row, scan_table, told_of
from simulations.populations import ItemDomain, Loaded

if TYPE_CHECKING:
    import polars as pl

POLARITY, USER, TEXT, WIDTH = 0, 4, 5, 6
URL = r"\w+://\S+|www\.\S+"
HANDLE = r"@\w+"
WORD = r"[\p{L}\p{N}_]+(?:['’][\p{L}\p{N}_]+)*"
NO_WORD = "@"
"""No word of any tweet."""
ENTITIES = {"&quot;": '"', "&lt;": "<", "&gt;": ">", "&#39;": "'", "&apos;": "'", "&amp;": "&"}


@dataclass(frozen=True, kw_only=True)
class Sentiment140(ItemDomain):
    """Authors' word counts over all their tweets.

    The paper says no more than "we parse each user's tweets to words, and treat each word as an
    element" [2]_. It leaves open letter case, punctuation, user handles, URLs and HTML entities.
    Chosen here: entities (``&amp;`` and the like) are decoded; a word is a maximal run of letters,
    digits and underscores of any script, with apostrophes inside it ("can't"); all other
    punctuation separates, so "#tag" gives "tag"; words are lower-cased; handles ("@name") and URLs
    are not words. No stemming, no stop words.

    Parameters
    ----------
    path : path
        Latin-1 CSV of polarity, id, date, query, user, text without a header. A first row whose
        polarity is not an integer is taken for a stray header and counted as dropped.
    top, domain, max_users
        See :class:`~simulations.populations.ItemDomain`.
    skip_bad_rows : bool, default False
        Leave out and count rows with too many fields, instead of refusing the file.
    """

    kind: ClassVar[str] = "sentiment140"
    path: str | Path
    skip_bad_rows: bool = False

    def load(self) -> Loaded:
        """Read the file; authors without a single word are kept, with an empty record.

        Raises PopulationError for a missing file, another number of columns and bad rows; names the
        file and row.
        """
        import polars as pl

        from fedhist.users.frames import items_of_rows
        from fedhist.users.rows import checked_events, collected, judged

        path = existing(Path(self.path))
        form = TableFormat(separator=",", encoding="latin-1")
        first = first_row(path, ",", form)
        if len(first) != WIDTH:
            raise PopulationError(f"{path}: need {WIDTH} columns, the first row has {len(first)}")
        stray = not _is_integer(first[POLARITY])
        form = TableFormat(separator=",", encoding="latin-1", header=stray)
        with told_of(path):
            table = scan_table(path, [USER, TEXT], form)
            user, text = table.names
            tweets = checked_events(table.rows, user=user, item=text, overflow=table.overflow)
            tally = collected(tweets.group_by("fault").agg(rows=pl.len()))
            bad = judged(tweets, tally, self.skip_bad_rows)
            rows = self._words(tweets.filter(pl.col("fault") == 0))
            ids, items, _ = items_of_rows(rows, user="user", item="word", count="n")
        dropped = {"stray header": 1, **bad} if stray else bad
        return self.bounded(Users(ids, items=items), f"words of {path.name}", dropped)

    def _words(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        import polars as pl

        text = pl.col("item").str.replace_many(list(ENTITIES), list(ENTITIES.values()))
        tokens = text.str.extract_all(f"{URL}|{HANDLE}|{WORD}")
        words = rows.select("user", word=tokens).explode("word")
        # An author whose tweets hold no word stays a user: count zero of NO_WORD.
        is_word = ~pl.col("word").str.contains(f"^(?:{URL}|@)").fill_null(True)
        word = pl.when(is_word).then(pl.col("word").str.to_lowercase()).otherwise(pl.lit(NO_WORD))
        return words.select("user", word=word, n=is_word.cast(pl.UInt8))


def _is_integer(text: str) -> bool:
    return text.strip().removeprefix("-").isdecimal()

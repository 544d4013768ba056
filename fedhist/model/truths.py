"""Truths: which statistic of the users a protocol estimates, so that no two are taken for one."""

from __future__ import annotations

from fedhist.base.checks import Words


class Truth(Words):
    """What an estimate is about. On users of equal sizes and one taste several of them agree."""

    AVERAGE_OF_USERS = "average of users"
    POOLED = "pooled"
    ONE_ITEM = "one item a user"
    COMMON = "common distribution"
    TOTAL = "total"
    HOLDERS = "users who hold it"
    OWN_MEANS = "users' own means"
    AVERAGE_RISK = "average risk of users"
    OWN = "its own truth"

    @property
    def in_words(self) -> str:
        """Return one sentence for a report.

        >>> Truth.POOLED.in_words
        'all samples weigh the same, so that users with many of them weigh more'
        """
        return {
            Truth.AVERAGE_OF_USERS: "every user weighs the same, however many samples it holds: "
            "(1/n) sum over users of its own mean or shares",
            Truth.POOLED: "all samples weigh the same, so that users with many of them weigh more",
            Truth.ONE_ITEM: "one item of every user, drawn from its own; who has none counts, too",
            Truth.COMMON: "the one distribution that all users draw from: on users who differ the "
            "estimate is about none of them",
            Truth.TOTAL: "the sum over users of what each of them holds",
            Truth.HOLDERS: "how many users hold an item, each of them once, whatever its count",
            Truth.OWN_MEANS: "a statistic of the users' own means, one number for each user",
            Truth.AVERAGE_RISK: "the minimiser of the risk that is averaged over users, each of "
            "whom weighs the same",
            Truth.OWN: "what the protocol itself says that it estimates",
        }[self]

    def __str__(self) -> str:
        return self.value

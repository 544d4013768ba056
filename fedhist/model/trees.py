"""Adding up in the shape of a tree, so that who added what, and when, changes no digit.

The sum of leaves 0, 1, ... is that of aligned pairs, of aligned pairs of pairs, and so on; a leaf
that is not there is passed over. Blocks of a node's users are leaves, and so are nodes by index.
"""

from __future__ import annotations

from fedhist.model.query import Summary


class Tree:
    """A sum of summaries by number: of all leaves, in whatever order they come."""

    def __init__(self) -> None:
        self._parts: dict[tuple[int, int], Summary] = {}

    def __len__(self) -> int:
        """Count the partial sums that wait for their neighbours."""
        return len(self._parts)

    def add(self, index: int, part: Summary, level: int = 0) -> None:
        """Add leaf ``index``, or the sum of leaves ``index 2^level`` to ``(index + 1) 2^level``."""
        while (level, index ^ 1) in self._parts:
            other = self._parts[level, index ^ 1]
            part = Summary.merge([other, part] if index & 1 else [part, other])
            del self._parts[level, index ^ 1]
            level, index = level + 1, index >> 1
        if (level, index) in self._parts:
            raise ValueError(f"part {index} of level {level} was added already")
        self._parts[level, index] = part

    def join(self, other: Tree) -> None:
        """Add what another tree holds, of other leaves."""
        for (level, index), part in other._parts.items():
            self.add(index, part, level)

    def total(self) -> Summary:
        """Return the sum of what was added; nothing is taken out."""
        return Summary.merge([self.own_total()])

    def own_total(self) -> Summary:
        """Return the sum as :meth:`total` does; the part itself, if one was added and has sums."""
        parts, level = dict(self._parts), 0
        while len(parts) > 1:
            here = sorted(i for at, i in parts if at == level)
            for index in here:
                if (level, index) not in parts:
                    continue  # its neighbour took it along
                joined = parts.pop((level, index))
                other = parts.pop((level, index ^ 1), None)
                if other is not None:  # the smaller index comes first
                    joined = Summary.merge([joined, other])
                parts[level + 1, index >> 1] = joined
            level += 1
        only = next(iter(parts.values()), None)
        return only if only is not None and only.linear else Summary.merge(parts.values())

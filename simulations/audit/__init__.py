"""The auditor: says whether a mechanism keeps its claim; by enumeration, or by statistics."""

"""The tables and figures of the papers, measured again: ``fedhist reproduce``."""

"""Local randomizers as laws: written once, read by both halves, the theory and the auditor."""

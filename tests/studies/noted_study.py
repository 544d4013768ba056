"""A study file of the protocol that notes its runs, for what is added to it."""

from __future__ import annotations

from pathlib import Path

NOTED = Path(__file__).with_name("noted.py")
BASE = f"""
[run]
runtime = "inline"
plugins = ["{NOTED}"]

[protocol]
name = "test-noted"
epsilon = 1.0
delta = 1e-6
clip = 5.0

[population]
kind = "zipf"
n_users = 60
d = 5
mean_items = 4
seed = 2
"""

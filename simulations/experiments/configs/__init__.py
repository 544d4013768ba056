"""Experiments of ``fedhist reproduce``, one TOML file each."""

"""Studies from Python: what the commands do, with data in memory and objects for results."""

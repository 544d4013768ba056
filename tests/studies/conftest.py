"""Keep pytest from collecting these tests' plugins for docstrings: they register protocols."""

collect_ignore = ["noted.py", "histograms.py", "conftest.py"]

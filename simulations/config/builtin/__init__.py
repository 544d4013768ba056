"""The configurations that come with fedhist, as TOML files."""

"""Reports around an estimate from earlier users: the script, its stages, its radius."""

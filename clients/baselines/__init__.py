"""One report of one sample or one mean: what local means are compared with."""

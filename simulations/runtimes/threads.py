"""One thread of BLAS in every process that is started here: the other cores are other processes'.

Sums of real numbers depend on how many threads BLAS splits them over, so that a run has the same
digits on any number of cores, and in Ray's workers. And threads that wait for a core spin: beside
other work matrices cost up to twice the time and the CPU of one thread.
"""

THREADS = {v: "1" for v in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
"""Read once, when NumPy is imported."""

"""The command line, one file a command."""

import os

from simulations.runtimes.threads import THREADS

if not THREADS.keys() & os.environ.keys():
    os.environ.update(THREADS)

"""One question at four levels of trust: shares of items, and what each level costs."""

import sys

import fedhist as fh

compared = fh.compare("trust", seeds=3)  # a built-in study; fedhist list studies trust shows it
compared.figure().savefig(sys.argv[1])

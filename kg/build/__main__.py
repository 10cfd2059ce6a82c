"""python -m kg.build: kepl graph build, for scripts that call it so."""

import sys

from core.call import main

sys.exit(main(["graph", "build", *sys.argv[1:]]))

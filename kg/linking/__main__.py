"""python -m kg.linking: kepl data link, for scripts that call it so."""

import sys

from core.call import main

sys.exit(main(["data", "link", *sys.argv[1:]]))

"""python -m kg.build SOURCE [PATH] --out FOLDER: what `kg.build.source` documents."""

import sys

from kg.build.source import main

sys.exit(main())

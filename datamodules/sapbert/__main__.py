"""python -m datamodules.sapbert: see datamodules.sapbert.pairs."""

from datamodules.sapbert.pairs import main

if __name__ == "__main__":
    main()

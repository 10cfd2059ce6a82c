"""python -m datamodules.sapbert: see datamodules.sapbert.name_pairs."""

from datamodules.sapbert.name_pairs import main

if __name__ == "__main__":
    main()

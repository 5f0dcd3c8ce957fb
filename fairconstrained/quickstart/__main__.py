"""``python -m fairconstrained.quickstart``."""

from fairconstrained.quickstart import main

if __name__ == "__main__":
    main()

"""``python -m fairconstrained.audit``."""

from fairconstrained.audit import main

if __name__ == "__main__":
    main()

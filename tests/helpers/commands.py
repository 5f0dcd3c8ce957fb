"""Commands of the package, as the command line runs them."""

import subprocess
import sys

IMPORTS = """
import sys
from fairconstrained.{command} import main
try:
    main(sys.argv[1:])
finally:
    print({{"jinja2", "numpy", "pandas", "sklearn", "torch"}} & set(sys.modules))
"""


def answers_without_imports(command, argument):
    """Whether the command prints help, and nothing else that ends well, before heavy imports."""
    ran = [sys.executable, "-c", IMPORTS.format(command=command), argument]
    done = subprocess.run(ran, capture_output=True, text=True, check=False)
    helps = ("usage:" in done.stdout, done.returncode == 0)
    return done.stdout.endswith("set()\n") and helps == (argument == "--help",) * 2

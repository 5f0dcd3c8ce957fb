"""One thread for each process: pytest-xdist starts as many processes as there are cores.

Set here because libraries read it as they are loaded, and this package is imported before torch.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

"""Processor seconds of ``python -m fairconstrained.audit`` on a file of many rows.

    python -m benchmarks.speed.audit
    python -m benchmarks.speed.audit --rows 100000

Two attributes with ten combinations, labels, scores and earlier decisions, all of them generated.
The file is written before the clock starts; reading it, and importing the audit, count.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from fairconstrained import audit

_ASKED = """--decision granted --label repaid --sensitive sex region --positive granted yes
    --score score --before old --slack 0.05"""


def table(n_rows: int) -> pd.DataFrame:
    """Return decisions by a score, with a higher bar for one group."""
    rng = np.random.default_rng(0)
    score, sex = rng.random(n_rows), rng.choice(["woman", "man"], n_rows)
    return pd.DataFrame(
        {
            "sex": sex,
            "region": rng.choice(list("ABCDE"), n_rows, p=[0.5, 0.2, 0.15, 0.1, 0.05]),
            "score": score.round(4),
            "repaid": np.where(rng.random(n_rows) < score, "yes", "no"),
            "granted": np.where(score > 0.5 + 0.05 * (sex == "woman"), "granted", "refused"),
            "old": np.where(score > 0.5, "granted", "refused"),
        }
    )


def main() -> None:
    """Write a file, audit it, and print the seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    n_rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decisions.csv"
        table(n_rows).to_csv(path, index=False)
        start = time.process_time()
        audit.main(["--csv", str(path), *_ASKED.split(), "--output", folder])
        print(f"{n_rows:,} rows: {time.process_time() - start:.1f} s of the processor")


if __name__ == "__main__":
    main()

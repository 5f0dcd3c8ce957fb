"""What a slack on the training rows is worth on new ones, certified or not: a picture.

    python -m benchmarks.promises --output docs/images/new_data.png

Fifteen generated samples for each number of rows, demographic parity within .05, gaps on 200,000
new rows: of RateConstrainedClassifier, and of CertifiedClassifier around it, hollow if it has no
certificate. Prints the fraction above the slack, with a margin of 1 and 1.645 too.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm

from fairconstrained import RateConstrainedClassifier
from fairconstrained.datasets import make_biased_classification
from fairconstrained.metrics import demographic_parity_difference
from fairconstrained.model_selection import CertifiedClassifier

SLACK = 0.05
ROWS = (1_500, 5_000, 15_000, 50_000)
MARGINS = (1.0, 1.645)
COLORS = ("#D55E00", "#0072B2")


def gaps(n_rows: int, seed: int, population: dict) -> list[tuple[float, bool]]:
    """Gap on new rows and whether it was certified: plain, certified, with margins."""
    rows = np.random.default_rng(seed).integers(len(population["y"]) - 200_000, size=n_rows)
    X, y, group = (population[name][rows] for name in ("X", "y", "group"))
    new = {name: values[-200_000:] for name, values in population.items()}
    plain = RateConstrainedClassifier(slack=SLACK)
    found = []
    narrowed = [RateConstrainedClassifier(slack=SLACK, margin=margin) for margin in MARGINS]
    for model in (plain, CertifiedClassifier(plain, random_state=seed), *narrowed):
        predicted = model.fit(X, y, sensitive_features=group).predict(new["X"])
        gap = demographic_parity_difference(new["y"], predicted, sensitive_features=new["group"])
        found.append((gap, bool(getattr(model, "certified_", False))))
    return found


def main() -> None:
    """Train, print, draw."""
    from matplotlib.figure import Figure

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("results/new_data.png"))
    parser.add_argument("--samples", type=int, default=15)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    data = make_biased_classification(1_000_000, n_features=6, bias=0.4, random_state=0)
    population = {"X": data.data, "y": data.target, "group": data.sensitive_features}
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    jobs = [(n, seed) for n in ROWS for seed in range(options.samples)]
    found = np.array([gaps(*job, population) for job in tqdm(jobs)])  # (jobs, models, 2)
    place = np.repeat(np.arange(len(ROWS)), options.samples)
    place = place + np.tile(np.linspace(-0.25, 0.25, options.samples), len(ROWS))
    titles = ("slack kept on the training rows", "certified on rows split off")
    for m, (ax, title) in enumerate(zip(axes, titles, strict=True)):
        gap, certified = found[:, m, 0], found[:, m, 1] > 0
        claimed = certified if m else np.ones(len(jobs), dtype=bool)
        ax.scatter(place[claimed], gap[claimed], s=18, color=COLORS[m])
        ax.scatter(place[~claimed], gap[~claimed], s=18, facecolors="none", edgecolors="0.5")
        ax.axhline(SLACK, color="0.35", linestyle="--", linewidth=1)
        ax.set_xticks(range(len(ROWS)), [f"{n:,}" for n in ROWS])
        ax.set(title=title, xlabel="rows")
        for i, n in enumerate(ROWS):
            of = claimed & (np.rint(place) == i)
            above = (gap[of] > SLACK).mean() if of.any() else np.nan
            print(f"{title}, {n} rows: {of.sum()} promises, {above:.0%} broken")
    for m, margin in enumerate(MARGINS, start=2):
        for i, n in enumerate(ROWS):
            above = (found[np.rint(place) == i, m, 0] > SLACK).mean()
            print(f"margin={margin}, {n} rows: {above:.0%} above the slack")
    axes[0].set_ylabel("gap on new rows")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.output, dpi=130)


if __name__ == "__main__":
    main()

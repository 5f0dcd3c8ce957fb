"""As `dpsgda`, with a hidden layer of 32 units."""

from functools import partial

from benchmarks.solvers import dpsgda

METHOD = "fairconstrained, private network"
OBJECTIVES = ["private_rates", "private_images"]

epsilons = dpsgda.epsilons
fit = partial(dpsgda.fit, model=(32,))

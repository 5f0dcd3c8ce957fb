"""Stochastic gradient descent-ascent: mini-batches, for networks and large data."""

from __future__ import annotations

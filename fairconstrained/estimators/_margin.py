"""Slacks with a margin for what chance adds to a gap."""

from __future__ import annotations

from dataclasses import replace

import torch

from fairconstrained.constraints import Stack

__all__ = ["told_by", "with_margin"]


def with_margin(problem, x, margin):
    """The problem with slacks less `margin` standard errors of the gaps at x."""
    data, stack = problem.data, problem.constraint
    scores = problem.model.scores(x[: problem.model.n_params], data.X).detach()
    members = [
        member.narrowed(margin * member.deviations(scores, member.place(*data[1:])))
        for member in stack.members
    ]
    return replace(problem, constraint=Stack(stack.space, members))


def told_by(stack, narrow, first, second):
    """Both solutions as one, the second with the values that it has under the wider slacks."""
    wide, slack = (torch.cat([m.slack for m in s.members]) for s in (stack, narrow))
    change = torch.cat((wide.new_zeros(1), slack - wide))

    def told(iterate):
        by = change.to(iterate.hard)
        return iterate._replace(soft=iterate.soft + by, hard=iterate.hard + by)

    return replace(
        second,
        iterate=told(second.iterate),
        n_iter=first.n_iter + second.n_iter,
        history=[*first.history, *map(told, second.history)],
        times=[*first.times, *(first.times[-1] + time for time in second.times)],
    )

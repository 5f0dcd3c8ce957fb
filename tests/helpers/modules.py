"""Modules, losses and constraints of modules, as users of ``train`` write them."""

import torch
import torch.nn.functional as F
from torch import nn


def normalised(n_features, n_outputs):
    """A network with statistics of batches and dropout."""
    hidden = nn.Linear(n_features, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2)
    return nn.Sequential(*hidden, nn.Linear(8, n_outputs))


def log_loss(outputs, batch):
    """Of the second tensor of a batch, by the first column of outputs."""
    return F.binary_cross_entropy_with_logits(outputs[:, 0], batch[1].to(outputs))


def gap_at_most(slack):
    """The gap between mean log losses of the groups, which are the third tensor of a batch."""

    def loss_gap_of_groups(outputs, batch):
        _, y, group = batch
        losses = F.binary_cross_entropy_with_logits(outputs[:, 0], y.to(outputs), reduction="none")
        gap = losses[group == 1].mean() - losses[group == 0].mean()
        return torch.stack((gap - slack, -gap - slack))

    return loss_gap_of_groups


def weights(result):
    return torch.cat([p.detach().reshape(-1) for p in result.module.parameters()])

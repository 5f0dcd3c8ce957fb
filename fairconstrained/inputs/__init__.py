"""Read the inputs of users: labels, decisions, groups, strata, weights and their order.

The results are codes, and a :class:`~fairconstrained.inputs.values.Description` of the
columns, with which later data are compared.
"""

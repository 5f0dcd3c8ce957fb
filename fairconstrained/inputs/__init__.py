"""One reader of what users give: labels, decisions, groups, strata, weights and their order.

It gives codes, and a :class:`~fairconstrained.inputs.description.Description` of the columns, with
which later data are compared.
"""

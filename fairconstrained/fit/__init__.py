"""A fit as a line of values: a task, rows, columns of the model, a problem, a result."""

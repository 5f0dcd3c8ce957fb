"""What is compared.

A file trains one method (``METHOD``, ``OBJECTIVES``, ``fit`` and what its objective asks for), or
holds ``SOLVERS``, a table of methods that differ in parameters: each entry has the same attributes.
"""

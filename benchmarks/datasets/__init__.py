"""What is learnt from: ``load()`` gives a Bunch as ``load_dataset`` does.

A file is one data set, or holds ``DATASETS``, a table of them.
"""

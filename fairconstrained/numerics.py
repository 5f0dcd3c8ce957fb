"""Rounding errors and sizes of blocks that several rooms share.

Times in the comments are processor seconds of one thread, as ratios: medians of five runs.
"""

# Rounding error of a zero: 4,096 additions of numbers near one, each off by 2.2e-16.
ROUNDING = 1e-12
# Negligible as a weight, a rate or a relative distance, but above the rounding of sums.
NEGLIGIBLE = 1e-9
# In place of a probability of zero: its logarithm is finite, and below any that classifiers return.
TINY = 1e-300
# Fraction of the promised change that a step of a line search must bring (Nocedal and Wright,
# Numerical Optimization, 2nd ed., Section 3.1, which recommends this value).
SUFFICIENT = 1e-4

# Values of a vector at a time: 0.5 MB, which stay in the cache. Log losses of 4 million scores take
# 0.55 times as long as at once; blocks of 16,384 are as fast, blocks of 1,024 slower than at once.
VECTOR_ROWS = 65_536
# Rows of some tens of columns at a time. Products of 400,000 rows in single precision with a
# vector in double precision take a quarter of the time that they take at once.
PIECE_ROWS = 16_384
# Rows at a time that are read twice in a row: distances of rows in double precision take an eighth
# of the time that they take at once, and 0.6 of that in pieces of 16,384.
CACHE_ROWS = 1024
# Scores or changes of labels that workers send at a time: 3 MB. Where there are more, evenly spaced
# ones stand for them.
SENT_SCORES = 400_000


def without_rounding(value: float) -> float:
    """Round the last digits off a difference of fractions.

    A fit whose gap equals the slack keeps it by the metric too: .05, not .05000000000000004.
    """
    return round(value, 14)

"""Workers that are threads of one process, for tests: what they sum is what processes sum."""

import threading
from concurrent.futures import ThreadPoolExecutor


class ThreadWorker:
    def __init__(self, rank, size, barrier, given):
        self.rank, self.size = rank, size
        self._barrier, self._given = barrier, given

    def sum(self, tensor):
        self._given[self.rank] = tensor
        self._barrier.wait()
        total = sum(self._given[1:], self._given[0])
        self._barrier.wait()  # before anybody gives the next one
        return total


def run_in_threads(task, size):
    """What ``task(worker)`` returns on each worker; the error of one is raised."""
    barrier, given = threading.Barrier(size, timeout=60), [None] * size

    def work(rank):
        try:
            return task(ThreadWorker(rank, size, barrier, given))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(work, range(size)))

"""Share results that clones of one estimator would otherwise compute again for the same rows.

scikit-learn's searches clone the estimator for each candidate, so nothing fitted survives from one
candidate to the next. Here the cloned object has a store, and its clones have handles to it.
"""

from __future__ import annotations

import hashlib
import pickle
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from types import SimpleNamespace
from typing import Any

from sklearn.base import clone

# Size of a store, half a GB: results that clones share must not push the data out of memory.
_MOST_BYTES = 1 << 29


class Store:
    """Keep results by key, at most half a gigabyte; the least recently used results go first.

    The store belongs to the object that was cloned and ends with it. Pickles and copies of that
    object begin with an empty store, also in worker processes; threads share the store.
    """

    def __init__(self) -> None:
        self.follows = False  # whether fits start where fits with other slacks ended
        self._seed: int | None = None
        self._results: dict[Any, Future[Any]] = {}  # in the order of their last use
        self._sizes: dict[Any, int] = {}
        self._lock = Lock()

    def __reduce__(self) -> Any:
        return Store, ()

    def seed(self, drawn: int) -> int:
        """Return the first seed that a clone has drawn."""
        with self._lock:
            self._seed = drawn if self._seed is None else self._seed
        return self._seed

    def recall(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Return the result of `compute`, which is called once for each key; other callers wait."""
        with self._lock:
            result = self._results.pop(key, None)
            # The first caller computes outside the lock; others wait for its future, so that
            # nothing is computed twice.
            is_new = result is None
            # Popped and stored again: dictionaries keep the order, and the oldest use is first.
            self._results[key] = result = result or Future()
        if is_new:
            try:
                result.set_result(compute())
            except BaseException as error:
                with self._lock:
                    self._results.pop(key, None)
                result.set_exception(error)
                raise
            size = size_of(result.result())
            with self._lock:
                self._sizes[key] = size
                others = [old for old in self._results if old in self._sizes and old != key]
                for old in [key] if size > _MOST_BYTES else others:  # too large: it goes alone
                    if sum(self._sizes.values()) <= _MOST_BYTES:
                        break
                    del self._sizes[old], self._results[old]
        return result.result()


class Handle:
    """Refer a clone to the store of the object it was cloned from, while that object exists."""

    def __init__(self, store: Store | None = None):
        self._store: Callable[[], Store | None] = lambda: None
        if store is not None:
            # Weak, so that clones which live longer do not keep the results of the search.
            self._store = weakref.ref(store)

    def __reduce__(self) -> Any:
        return Handle, ()

    @property
    def follows(self) -> bool:
        """Whether fits start where fits with other slacks ended."""
        store = self._store()
        return store is not None and store.follows

    @property
    def shares(self) -> bool:
        """Whether there is a store, in which results are kept for other clones."""
        return self._store() is not None

    def seed(self, drawn: int) -> int:
        """Return one seed for all clones without random_state: the first seed that was drawn."""
        store = self._store()
        return drawn if store is None else store.seed(drawn)

    def digest(self, *values: Any) -> bytes | None:
        """Return a digest of the values; None without a store, and if they cannot be pickled."""
        # Equal digests mean equal values; unequal ones, at worst, that something is computed again.
        if not self.shares:
            return None
        total = hashlib.blake2b(digest_size=32)
        try:
            _pickle_into(total.update, values)
        except Exception:
            return None
        return total.digest()

    def recall(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Return the result of `compute`, or of an earlier call with a key that is not None."""
        # Results are shared: nobody may change them.
        store = self._store()
        return compute() if store is None or key is None else store.recall(key, compute)


def share(parent: Any, child: Any) -> Any:
    """Return the child, a clone of the parent, with a handle to the parent's store."""
    store = store_of(parent)
    # Beside the parameters, where get_params and repr do not look.
    child.__dict__["_handle"] = Handle(store)
    if store.follows:
        store_of(child).follows = True
    return child


def store_of(estimator: Any) -> Store:
    """Return the store for clones of an estimator."""
    store: Store = estimator.__dict__.setdefault("_store", Store())
    return store


def follow(estimator: Any) -> Any:
    """Return a clone whose own clones start where fits with other slacks ended."""
    first = clone(estimator)
    for part in (first, *first.get_params(deep=True).values()):
        if hasattr(part, "_handle"):
            store_of(part).follows = True
    return first


def size_of(value: Any) -> int:
    """Return the size of a value's pickle; more than any store holds if it has none."""
    sizes: list[int] = []
    try:
        _pickle_into(lambda part: sizes.append(memoryview(part).nbytes), value)
    except Exception:
        return _MOST_BYTES + 1
    return sum(sizes)


def _pickle_into(write: Callable[[Any], object], value: Any) -> None:
    """Write a pickle piece by piece; arrays are not copied."""

    def outside(buffer: pickle.PickleBuffer) -> None:
        write(buffer.raw())

    sink: Any = SimpleNamespace(write=write)
    pickle.Pickler(sink, protocol=5, buffer_callback=outside).dump(value)


NO_STORE = Handle()

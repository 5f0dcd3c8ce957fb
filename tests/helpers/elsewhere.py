"""A made-up device, whose tensors no tensor of the CPU may meet: what a GPU does, without one.

Its tensors compute on the CPU and say that they are elsewhere. As with CUDA, an operation on
tensors of two devices raises, except for copies, for numbers (tensors without dimensions) in
pointwise operations and for indices in ``x[index]``; so does a generator of another device, and
``numpy()``.
"""

import functools

import torch
from torch import Tensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

NAME = "elsewhere"
_aten = torch.ops.aten
_COPIES = {_aten._to_copy.default, _aten.copy_.default, _aten._copy_from.default}
# torch makes these from an empty tensor, which it resizes.
_ARANGE = ("arange", "arange.start", "arange.start_step")
_MADE_EMPTY = (*_ARANGE, "eye", "eye.m", "linspace", "logspace")
_registered = []  # kernels live as long as their libraries
_INDEXED = {_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default}


class _Module(_DummyBackendModule):
    """What torch asks of a device before it draws random numbers there."""

    def get_rng_state(self, device=None):
        return torch.random.get_rng_state()

    def set_rng_state(self, state, device=None):
        pass


class Elsewhere(Tensor):
    """A tensor of the device; `here` holds its numbers."""

    @staticmethod
    def __new__(cls, here):
        size = here.size(), here.stride(), here.storage_offset()
        return Tensor._make_wrapper_subclass(cls, *size, dtype=here.dtype, device=f"{NAME}:0")

    def __init__(self, here):
        self.here = here

    def __repr__(self):
        return f"Elsewhere({self.here})"

    def __deepcopy__(self, memo):
        """A tensor of its own; the copy of a parameter is one."""
        copied = Elsewhere(self.here.detach().clone()).requires_grad_(self.requires_grad)
        copied._is_param = getattr(self, "_is_param", False)
        memo[id(self)] = copied
        return copied

    def tolist(self):
        return self.here.tolist()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        _refuse_mixture(func, args, kwargs)
        result = _computed(func, args, kwargs)
        result = return_and_correct_aliasing(func, args, kwargs, result)
        for x in tree_leaves((args, kwargs)):
            if isinstance(x, Elsewhere) and x.shape != x.here.shape:
                raise NotImplementedError(f"{func} resizes a tensor in place")
        return result


def _computed(func, given, options):
    args, own = tree_map_only(Elsewhere, lambda x: x.here, (given, options))
    if func is _aten._copy_from.default:
        return args[1].copy_(args[0])
    to_cpu = torch.device(own.get("device") or NAME).type != NAME
    result = func(*args, **({**own, "device": "cpu"} if "device" in own else own))
    return result if to_cpu else tree_map_only(Tensor, Elsewhere, result)


def _refuse_mixture(func, args, kwargs):
    leaves = tree_leaves((args, kwargs))
    if any(isinstance(x, torch.Generator) for x in leaves):
        raise RuntimeError(f"{func}: expected a generator of {NAME}, but found one of the CPU")
    if func in _COPIES:
        return
    if func in _INDEXED:
        leaves = tree_leaves((args[0], args[2:]))
    number = torch.Tag.pointwise in func.tags
    for x in leaves:
        if isinstance(x, Tensor) and not isinstance(x, Elsewhere) and (x.ndim or not number):
            raise RuntimeError(f"{func}: some tensors are on {NAME}, and some on the CPU")


@functools.cache
def elsewhere():
    """The name of the device, which is registered once in a process."""
    _setup_privateuseone_for_python_backend(NAME, _Module())
    every, aten = (torch.library.Library(name, "IMPL", "PrivateUse1") for name in ("_", "aten"))

    def without_tensors(func, *args, **kwargs):
        return Elsewhere.__torch_dispatch__(func, (), args, kwargs)

    def copied(source, target, non_blocking=False):
        return without_tensors(_aten._copy_from.default, source, target)

    every.fallback(without_tensors)
    for name in _MADE_EMPTY:
        func = getattr(getattr(_aten, name.partition(".")[0]), name.partition(".")[2] or "default")
        aten.impl(name, functools.partial(without_tensors, func))
    aten.impl("_copy_from", copied)
    _registered.extend((every, aten))
    return NAME

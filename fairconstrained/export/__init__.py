"""Fitted models outside of Python: model cards, files that can be audited, and ONNX."""

from fairconstrained.export.cards import ModelCard, model_card, trusted_types
from fairconstrained.export.onnx import register_onnx_converters, to_onnx

__all__ = ["ModelCard", "model_card", "register_onnx_converters", "to_onnx", "trusted_types"]

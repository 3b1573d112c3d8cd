"""The account of a model: layer by layer, after the fusions that engines make, what is computed and what is moved."""

from edge.model.account.count import account_of_model
from edge.model.account.layer import ConvShape, LayerAccount, ModelAccount

__all__ = ["ConvShape", "LayerAccount", "ModelAccount", "account_of_model"]

"""Layers of a model and the nodes that an engine runs for them: which of them can be told apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping

__all__ = ["nodes_of_lone_layers"]


def nodes_of_lone_layers(layers_of: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """Return the nodes of each layer that shares none of them with another layer."""
    nodes_of: dict[str, list[str]] = {}
    for node, layers in layers_of.items():
        for layer in layers:
            nodes_of.setdefault(layer, []).append(node)
    return {layer: nodes for layer, nodes in nodes_of.items() if all(len(layers_of[node]) == 1 for node in nodes)}

"""Which layers of a model can be told apart in what an engine runs."""

from edge.engine.kind import nodes_of_lone_layers


def test_a_layer_is_alone_where_none_of_its_nodes_is_another_ones_too():
    layers_of = {
        "x": {"a"},
        "y": {"a"},
        "both": {"b", "c"},
        "rest of b": {"b"},
        "none": set(),
        "z": {"d"},
    }

    assert nodes_of_lone_layers(layers_of) == {"a": ["x", "y"], "d": ["z"]}

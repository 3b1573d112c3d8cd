"""The engines that run a model, behind `edge.protocols.Engine`."""

"""Activations: what one layer keeps for the backward pass of one micro-batch, tensor by tensor."""

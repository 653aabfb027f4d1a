"""Tests that ask the real Megatron-Core and TransformerEngine, on CPU (extra `oracle`, scripts of ../shared/oracle)."""

"""Norms of linear maps, of convolutions above all, and bounds of them that rounding cannot spoil."""

"""A bound of a network's Lipschitz constant, module by module, and what it certifies."""

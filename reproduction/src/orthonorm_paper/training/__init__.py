"""Training of one run, and of many: data loading, engine, checkpoints, ranks, sweeps."""

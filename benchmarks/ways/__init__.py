"""All the ways to keep weights orthogonal, trained on one footing: `python -m benchmarks.ways`."""

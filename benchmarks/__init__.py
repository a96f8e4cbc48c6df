"""Benchmarks that anyone can run: `python -m benchmarks`. Speeds are ratios of medians from one interleaved run."""

"""Benchmarks that anyone can run: `orthonorm bench`. Speeds are ratios of medians measured in one run, interleaved."""

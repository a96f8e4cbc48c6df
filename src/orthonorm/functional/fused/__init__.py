"""Kernels in Triton for small matrices on a GPU."""

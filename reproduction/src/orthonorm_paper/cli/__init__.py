"""The command line `orthonorm-paper`."""

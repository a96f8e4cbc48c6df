"""Runs made from those of an experiment: a choice of them, others beside them, or with learning rates that were chosen."""

"""Runs made from those of an experiment: some of them, others beside them, or with a learning rate that was chosen."""

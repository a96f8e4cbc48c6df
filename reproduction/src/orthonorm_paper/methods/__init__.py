"""The methods that the paper compares: labels, the layers that each replaces, optimizers."""

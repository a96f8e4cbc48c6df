"""The forward pass of the transformation, in float32 and in float64."""

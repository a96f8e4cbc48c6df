"""What the tests of the reproduction share."""

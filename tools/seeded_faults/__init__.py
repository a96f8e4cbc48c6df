"""Break the code on purpose, one fault at a time, and require that the test named for it fails."""

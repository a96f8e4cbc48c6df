"""Each weight computed once in a context or a call, and a warning where it is computed over and over."""

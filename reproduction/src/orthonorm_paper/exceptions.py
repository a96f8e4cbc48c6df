"""The one exception of the reproduction that stands for a user's mistake."""


class UserError(ValueError):
    """A wrong argument, a missing file, a folder that cannot be written: rule, value got, cure.

    The command line prints its text as one line and exits with code 2; anything else is a fault of
    the program and keeps its traceback.

    Examples:
        >>> raise UserError("epochs must be positive; got 0. Give at least 1.")
        Traceback (most recent call last):
        ...
        orthonorm_paper.exceptions.UserError: epochs must be positive; got 0. Give at least 1.
    """

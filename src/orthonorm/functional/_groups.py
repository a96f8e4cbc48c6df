"""How the rows of a matrix are split into groups that are orthonormal by themselves."""

from itertools import groupby

__all__ = ["GROUPINGS", "check_group_arguments", "group_sizes", "operations", "row_limit", "runs_of_equal_size"]

GROUPINGS = ("balanced", "tail")


def row_limit(d: int, center: bool) -> int:
    """Return how many rows of length `d` can be orthonormal: `d`, or `d - 1` with centring.

    A centred row sums to zero, so all of them lie in a space of `d - 1` dimensions (errata 2); of rows without entries
    there is none.
    """
    return max(d - 1, 0) if center else d


def group_sizes(
    n: int, d: int, *, group_size: int | None = None, center: bool = False, grouping: str = "balanced"
) -> tuple[int, ...]:
    """Return the sizes of the groups into which `n` rows of length `d` are split.

    There are `k = ceil(n / min(group_size or limit, limit))` groups. `"balanced"` makes them as even as possible, the
    larger ones first (as `torch.tensor_split`); `"tail"` fills groups and leaves a smaller last one.

    Raises:
        TypeError: if `group_size` is not a whole number.
        ValueError: if no group of the asked size can be orthonormal, or an argument is not known.

    Examples:
        >>> group_sizes(100, 99, grouping="balanced"), group_sizes(100, 99, grouping="tail")
        ((50, 50), (99, 1))

    Source: the paper's group based orthogonalization, with errata 2 and 3; Mathematics (7).
    """
    check_group_arguments(group_size, grouping)
    limit = row_limit(d, center)
    if n == 0:
        return ()
    if d < 1:
        raise ValueError(f"rows need at least 1 entry; got d = {d}. Check the shape, or leave this weight as it is.")
    if limit < 1:
        raise ValueError(
            f"centring needs rows of at least 2 entries, since a centred row of one entry is zero; got d = {d}. "
            "Use center=False, or leave this weight as it is."
        )
    if group_size is not None and min(group_size, n) > limit:
        reason = "with centring a row sums to zero, which takes one dimension" if center else "without centring"
        cure = "or center=False, " if center and min(group_size, n) <= d else ""
        raise ValueError(
            f"a group may hold at most {limit} rows ({reason}); got group_size = {group_size} for a weight of "
            f"n = {n} rows of d = {d} entries. Use group_size={limit} or less, {cure}or group_size=None for the limit."
        )
    size = min(group_size or limit, limit)
    k = -(-n // size)
    if grouping == "tail":
        return (size,) * (k - 1) + (n - size * (k - 1),)
    return tuple(n // k + (i < n % k) for i in range(k))


def check_group_arguments(group_size: int | None, grouping: str) -> None:
    """Raise a TypeError or ValueError for a `group_size` or `grouping` that no weight could have."""
    if group_size is not None and (isinstance(group_size, bool) or not isinstance(group_size, int)):
        raise TypeError(f"group_size must be a whole number or None; got {group_size!r}.")
    if group_size is not None and group_size < 1:
        raise ValueError(f"group_size must be at least 1, or None for the limit; got {group_size}.")
    if grouping not in GROUPINGS:
        raise ValueError(f"grouping must be one of {', '.join(map(repr, GROUPINGS))}; got {grouping!r}.")


def runs_of_equal_size(sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return `(size, count)` of each run of equal neighbours, so that a run is transformed in one batch."""
    return [(size, len(list(run))) for size, run in groupby(sizes)]


def operations(size: int, d: int) -> int:
    """Return about how many operations the transformation of `size` rows of length `d` takes, forward and backward.

    $$10 s^2 d + 24 s^3$$

    Five products of `2 s^2 d` (the Gram matrix, `P V_C`, and three in the adjoint), and the decomposition with the
    products of `s x s` matrices. Ranks share work by it, and `conversion_plan` shows it.

    Examples:
        >>> operations(64, 576)
        29884416
    """
    return 10 * size * size * d + 24 * size**3

"""What a printed layer and a checkpoint say of the groups of a weight."""

from collections import Counter

from orthonorm.functional._groups import runs_of_equal_size

__all__ = ["groups_in_words", "options_in_words"]


def groups_in_words(sizes: tuple[int, ...], columns: int, groups: int, stacked: bool) -> str:
    """Return the groups in words: "2 groups of 32 rows", "64 orthonormal columns".

    Args:
        sizes: the rows of each group of one matrix.
        columns: how many blocks of one matrix have orthonormal columns; 0 for rows.
        groups: how many matrices there are: of a convolution's own groups, or of a stack.
        stacked: which of the two.
    """
    if columns:
        count = columns if stacked else groups * columns
        text = f"{sizes[0]} orthonormal columns" + (f" in each of {count} blocks" if count > 1 else "")
        return f"{text} in each of {groups} matrices" if stacked else text
    counts = Counter(sizes)
    text = " and ".join(
        f"{count} group{'s' * (count > 1)} of {size} row{'s' * (size > 1)}" for size, count in counts.items()
    )
    text = text or "no rows"
    if stacked:
        return f"{text} in each of {groups} matrices"
    return text if groups == 1 else f"{text} in each of {groups} convolution groups"


def options_in_words(sizes: tuple[int, ...], columns: int, groups: int, center: bool) -> str:
    """Return what decides the groups, as a checkpoint remembers it for a warning."""
    if columns:
        return f"orthonormal columns of {groups * columns} blocks"
    runs = " + ".join(f"{count} x {size}" for size, count in runs_of_equal_size(sizes))
    return f"groups of {runs} rows, {'centred' if center else 'not centred'}"

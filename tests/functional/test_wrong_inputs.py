"""What a user may get wrong, and what they are told: the rule, the value, the cure."""

import inspect
import re

import pytest
import torch

from orthonorm.functional import inverse_sqrt, orthonormalize
from orthonorm.functional._groups import check_group_arguments, group_sizes
from orthonorm.functional._orthogonality import orthogonality_errors

V = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))

# (call, arguments, options, exception, the rule, the value got, the cure)
WRONG = {
    "complex": (orthonormalize, (V.to(torch.complex64),), {}, TypeError, "must be real", "complex64", "view_as_real"),
    "a list": (orthonormalize, ([[1.0, 2.0]],), {}, TypeError, r"must be a torch\.Tensor", "got list", "as_tensor"),
    "integers": (orthonormalize, (V.long(),), {}, TypeError, "floating tensor", "int64", r"\.float\(\)"),
    "a vector": (orthonormalize, (V[0],), {}, ValueError, "must be matrices", r"\(5,\)", "Add a dimension"),
    "group of 5 centred": (
        orthonormalize,
        (V,),
        {"group_size": 5, "center": True},
        ValueError,
        "at most 4 rows",
        "group_size = 5.*n = 8 rows of d = 5",
        "group_size=4 or less, or center=False, or group_size=None",
    ),
    "group of 6 uncentred": (
        orthonormalize,
        (V,),
        {"group_size": 6, "center": False},
        ValueError,
        "at most 5 rows",
        "group_size = 6",
        "Use group_size=5 or less, or group_size=None",
    ),
    "group of 6 centred": (
        orthonormalize,
        (V,),
        {"group_size": 6, "center": True},
        ValueError,
        "at most 4 rows",
        "group_size = 6",
        "Use group_size=4 or less, or group_size=None",
    ),
    "one input centred": (
        orthonormalize,
        (V[:, :1],),
        {"center": True},
        ValueError,
        "at least 2 entries",
        "d = 1",
        "center=False",
    ),
    "no input": (group_sizes, (3, 0), {"center": False}, ValueError, "at least 1 entry", "d = 0", "leave"),
    "no input centred": (group_sizes, (3, 0), {}, ValueError, "at least 1 entry", "d = 0", "leave"),
    "group of none": (orthonormalize, (V,), {"group_size": 0}, ValueError, "at least 1", "got 0", "None"),
    "negative group": (orthonormalize, (V,), {"group_size": -2}, ValueError, "at least 1", "got -2", "None"),
    "half a group": (check_group_arguments, (2.0, "tail"), {}, TypeError, "whole number", r"2\.0", "None"),
    "a flag as a group": (orthonormalize, (V,), {"group_size": True}, TypeError, "whole number", "True", "None"),
    "a grouping": (orthonormalize, (V,), {"grouping": "even"}, ValueError, "grouping must be", "'even'", "'balanced'"),
    "a method": (orthonormalize, (V,), {"method": "svd"}, ValueError, "method must be", "'svd'", "'auto', 'eigh'"),
    "a method of the root": (inverse_sqrt, (V[:5],), {"method": "qr"}, ValueError, "method must", "'qr'", "'newton'"),
    "Sigma a list": (inverse_sqrt, ([[1.0]],), {}, TypeError, r"must be a torch\.Tensor", "got list", r"V @ V\.mT"),
    "Sigma not square": (inverse_sqrt, (V,), {}, ValueError, "square matrices", r"\(8, 5\)", r"\(\.\.\., n, n\)"),
    "Sigma a vector": (inverse_sqrt, (V[0],), {}, ValueError, "square matrices", r"\(5,\)", r"\(\.\.\., n, n\)"),
    "Sigma complex": (inverse_sqrt, (V[:5] * 1j,), {}, TypeError, "must be real", "complex", "real rows"),
    "Sigma of integers": (inverse_sqrt, (V[:5].long(),), {}, TypeError, "floating", "int64", r"\.float\(\)"),
    "sizes": (orthogonality_errors, (V, (4, 3)), {}, ValueError, "must sum to the 8 rows", r"\(4, 3\)", ""),
}


@pytest.mark.parametrize(
    ("call", "arguments", "options", "exception", "rule", "value", "cure"), WRONG.values(), ids=WRONG
)
def test_it_says_the_rule_the_value_and_the_cure(call, arguments, options, exception, rule, value, cure):
    # Without the wrapper that enforces annotations in tests: users do not have it.
    with pytest.raises(exception) as caught:
        inspect.unwrap(call)(*arguments, **options)
    for part in (rule, value, cure):
        assert re.search(part, str(caught.value)), f"{part!r} is not in: {caught.value}"

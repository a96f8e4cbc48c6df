"""The list of words: it finds what it is to find, and nothing else."""

import pytest

from glossary import PATTERN, found


@pytest.mark.parametrize(
    "text", ["drawn anew", "a free matrix", "the map is", "with He's gain", "condition of up to 1e3"]
)
def test_a_word_of_our_own_is_found(text: str):
    assert PATTERN.search(text)


@pytest.mark.parametrize(
    "text", ["learning rate", "a linear map", "the mapping", "a condition number of 1e3", "renewed"]
)
def test_a_word_of_the_field_is_not(text: str):
    assert not PATTERN.search(text)


def test_the_pages_and_docstrings_are_in_the_words_of_the_field():
    assert found() == []

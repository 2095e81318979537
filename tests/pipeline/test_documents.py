import pytest
from hypothesis import given
from hypothesis import strategies as st

from clozemill.pipeline.documents import copy_id, document_id, normalise_text


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("\ufeffPage one.", "Page one."),
        ("a\r\nb\rc", "a\nb\nc"),
        ("a\fb\vc", "a b c"),
        (" \n\u3000 text \u00a0\t", "text"),
        ("mid\ufeffdle", "mid\ufeffdle"),
        ("\f", ""),
    ],
)
def test_normalised_text_takes_exactly_the_four_steps(raw: str, expected: str) -> None:
    assert normalise_text(raw) == expected


@given(st.text())
def test_normalising_twice_changes_nothing_more_than_leading_marks(raw: str) -> None:
    once = normalise_text(raw)
    assert normalise_text(once) == once or once.startswith("\ufeff")


def test_an_id_depends_on_the_text_alone() -> None:
    assert document_id("tea") == document_id("tea")
    assert document_id("tea") != document_id("Tea")
    assert len(document_id("")) == 16


def test_kept_copies_have_ids_of_their_own() -> None:
    original = document_id("tea")
    ids = {copy_id(original, occurrence) for occurrence in range(100)}
    assert copy_id(original, 0) == original
    assert len(ids) == 100

"""Groups in words: every column that a tested question has is said."""

import re
from typing import Any

import pytest

from clozemill.analysis.group_labels import JUDGED, group_label, value_words
from clozemill.analysis.questions import Kind, all_questions


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"observed": 3, "trials": 9}, ""),
        ({"split": "train", "source": ""}, "train, source (none)"),
        ({"source": "all sources"}, "all sources"),
        ({"k": 0}, "tokens seen once"),
        ({"k": 10}, "tokens seen 1,024 to 2,047 times"),
        ({"twentieth": 0}, "0 to 5 % of the length"),
        ({"twentieth": 19}, "95 to 100 % of the length"),
        ({"band": 1}, "token ids at 0 to 2 %"),
        ({"band": 50}, "token ids at 98 to 100 %"),
        ({"word_length": 1}, "words of 1 piece"),
        ({"num_maskable": 22, "num_selected": 4}, "22 maskable, 4 selected"),
        ({"token_id": 1}, "token 1 'the'"),
        ({"split": "validation", "variant": 2}, "validation, variant 2"),
    ],
)
def test_a_group_is_said_in_words(row: dict[str, Any], said: str) -> None:
    assert group_label(row, ["[PAD]", "the"]) == said


def test_a_token_without_a_vocabulary_has_its_id() -> None:
    assert group_label({"token_id": 7}) == "token 7"


def test_no_tested_question_has_a_group_that_reads_like_a_column() -> None:
    known = {"action", "source", "variant"}  # words that say what they are
    columns = set()
    for question in all_questions():
        if question.kind not in (Kind.OFFENCES, Kind.FIGURES):
            final = question.sql.rpartition("\nselect\n")[2].partition("\nfrom ")[0]
            columns |= set(re.findall(r"^    (\w+),?$", final, re.MULTILINE)) - JUDGED
    assert {"split", "source", "k", "twentieth", "token_id"} <= columns
    for name in columns - known:
        assert "_" not in group_label({name: 1}), name
        assert not group_label({name: 1}).startswith(f"{name} 1"), name


def test_values_of_a_kind_are_said_in_words() -> None:
    assert value_words("twentieth", "16") == "80 to 85 % of the length"
    assert value_words("segment", "A") == "A"
    assert value_words("all", "") == ""

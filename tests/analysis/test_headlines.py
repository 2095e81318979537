"""The one figure of an answer: it is what the rows of a real dataset say."""

import duckdb
import pytest
from tests.pipeline.small_corpora import make_texts, small_build, write_json_lines, write_tokenizer

from clozemill.analysis.db import open_database
from clozemill.analysis.headlines import headline
from clozemill.analysis.questions import Kind, all_questions

QUESTIONS = {question.name: question for question in all_questions()}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    folder = tmp_path_factory.mktemp("audited")
    corpus = write_json_lines(folder / "corpus.jsonl", make_texts(60))
    small_build(corpus, write_tokenizer(folder / "tokenizer"), folder / "data")
    return open_database(folder / "data", threads=1)


def said(session: duckdb.DuckDBPyConnection, name: str) -> str:
    rows = session.sql(QUESTIONS[name].sql).to_arrow_table().to_pylist()
    assert rows
    return headline(name, rows)


def asked(session: duckdb.DuckDBPyConnection, figures: str) -> list[str]:
    rows = session.sql(figures).fetchall()
    assert len(rows) == 2
    return [f"{split} {share:.2%}" for split, share in rows]


@pytest.mark.parametrize(
    ("name", "share", "view", "words"),
    [
        ("mask_rates", "sum(num_selected) / sum(num_maskable)", "variants", "of the maskable toke"),
        (
            "padding",
            "1 - avg(num_tokens) / getvariable('max_seq_length')",
            "instances",
            "of full rows is padding",
        ),
        (
            "unknown_tokens",
            "sum(num_unknown) / sum(num_tokens)",
            "(from documents where fate = 'kept')",
            "of the tokens are [UNK]",
        ),
        (
            "truncation",
            "sum(if(reason = 'cut', count, 0)) / sum(if(reason = 'own', count, 0))",
            "(from ledger where section = 'pass_tokens')",
            "of the documents' tokens cut",
        ),
    ],
)
def test_a_share_is_said_of_each_split(
    session: duckdb.DuckDBPyConnection, name: str, share: str, view: str, words: str
) -> None:
    figures = asked(session, f"select split, {share} from {view} group by split order by split")
    assert said(session, name).startswith(", ".join(figures) + f" {words}")


def test_repeated_rows_are_counted(session: duckdb.DuckDBPyConnection) -> None:
    rows = [{"split": "train", "num_instances": 4_000, "num_repeats": 1_003}]
    assert headline("equal_rows", rows) == "train 1,003 of 4,000 rows repeat another's tokens"
    assert said(session, "equal_rows").startswith("train 0 of ")


def test_labels_are_those_of_the_source_that_is_furthest_off() -> None:
    rows = [
        {"split": "train", "source": "", "random_share": 0.6, "expected_share": 0.59, "z": -0.1},
        {"split": "train", "source": "b", "random_share": 0.5, "expected_share": 0.59, "z": -2.0},
        {"split": "validation", "source": "", "random_share": 1, "expected_share": 1, "z": None},
    ]
    assert headline("label_share", rows) == (
        "furthest off: train, source b, 50.00% random, 59.00% expected"
    )
    steered = [{**rows[0], "expected_share": None}]
    assert headline("label_share", steered) == "train, source (none): 60.00% random"


def test_the_best_probe_is_one_that_a_model_could_be() -> None:
    rows = [
        {"probe": "forced", "accuracy": 0.9, "accuracy_gain": 0.3},
        {"probe": "lengths", "accuracy": 0.7, "accuracy_gain": 0.1},
        {"probe": "source", "accuracy": 0.6, "accuracy_gain": 0.0},
    ]
    assert headline("nsp_shortcuts", rows) == "best probe, lengths: 70.00% right, prior 60.00%"
    assert headline("nsp_shortcuts", rows[:1]) == ""


def test_other_figures_and_answers_without_rows_have_no_headline(
    session: duckdb.DuckDBPyConnection,
) -> None:
    assert said(session, "lengths") == ""
    assert headline("mask_rates", []) == ""


def test_every_headline_is_of_a_question_with_figures(session: duckdb.DuckDBPyConnection) -> None:
    figures = [q.name for q in all_questions() if q.kind is Kind.FIGURES and "words" not in q.needs]
    silent = [name for name in figures if not said(session, name)]
    assert silent == ["lengths", "source_shares"]

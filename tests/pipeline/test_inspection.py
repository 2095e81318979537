import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest
from tests.pipeline.small_datasets import build_small, spoil, write_corpus

from clozemill.inspection_tables import LEGEND, instances_printout
from clozemill.pipeline.columns import InstanceColumns
from clozemill.pipeline.convert import convert_dataset
from clozemill.pipeline.dataset import open_dataset
from clozemill.pipeline.errors import DatasetError
from clozemill.pipeline.inspection import Inspector, InstanceView, readable_pieces
from clozemill.pipeline.tokenizer import PretrainingTokenizer, load_tokenizer
from clozemill.pipeline.verify import verify_dataset
from clozemill.pipeline.visible import visible


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small(tmp_path_factory.mktemp("inspect"))


@pytest.fixture(scope="module")
def views(built: Path) -> list[InstanceView]:
    return Inspector(open_dataset(built)).describe("train", range(60))


def words(text: str) -> str:
    """What the small vocabulary makes of a sentence: lower case, the full stop apart."""
    return text.lower().replace(".", " .").strip()


def joined(tokens: tuple[str, ...]) -> str:
    return " ".join(tokens).replace(" ##", "")


def test_segments_are_the_sentences_they_came_from(views: list[InstanceView]):
    num_whole = 0
    for view in views:
        a = view.tokens[1 : view.segment_b_start - 1]
        b = view.tokens[view.segment_b_start : -1]
        for tokens, span in zip((a, b), view.spans, strict=True):
            assert len(span.sentences) == span.num_sentences
            text = " ".join(words(sentence) for sentence in span.sentences)
            if span.cut_front or span.cut_back:
                assert joined(tokens).removeprefix("##") in text
            else:
                assert joined(tokens) == text
                num_whole += 1
    assert num_whole > 20


def test_origin_leads_back_to_the_record(built: Path, views: list[InstanceView]):
    corpus = (built.parent / "corpus.jsonl").read_bytes()
    span = views[0].spans[0]
    assert span.file is not None
    assert Path(span.file).name == "corpus.jsonl"
    assert span.offset is not None
    record = json.loads(corpus[span.offset :].split(b"\n")[0])
    assert record["id"] == span.external_id
    assert span.sentences[0].strip() in record["text"]
    assert views[0].source == record["source"]


def test_labels_say_whether_b_is_next(views: list[InstanceView]):
    kinds = {view.next_sentence for view in views}
    assert kinds == {"next", "random"}
    for view in views:
        a, b = view.spans
        if view.next_sentence == "next":
            assert a.document_id == b.document_id
            assert b.first_sentence == a.first_sentence + a.num_sentences
        else:
            assert a.document_id != b.document_id


def test_variants_say_what_is_hidden_and_shown(views: list[InstanceView]):
    actions = set()
    for view in views:
        assert len(view.variants) == 3
        for variant in view.variants:
            assert variant
            for item in variant:
                assert item.original == view.tokens[item.position]
                assert (item.action == "mask") == (item.shown == "[MASK]")
                assert (item.action == "keep") == (item.shown == item.original)
                actions.add(item.action)
    assert actions == {"mask", "keep", "random"}


def test_text_tells_the_same(views: list[InstanceView]):
    view = views[0]
    text = instances_printout([view], width=10_000).text
    assert view.instance_id in text
    for span in view.spans:
        assert span.document_id in text
        for sentence in span.sentences:
            assert sentence.strip() in text
    for number, variant in enumerate(view.variants):
        assert f"variant {number}: {len(variant)} selected" in text
        for item in variant:
            end = " =}" if item.action == "keep" else f" -> {item.shown}}}"
            assert "{" + item.original + end in text
    assert text.endswith(LEGEND + "\n")
    assert "\x1b" not in text
    assert "\x1b[" in instances_printout([view], is_terminal=True).text


def test_a_continuation_after_a_special_token_keeps_its_sign(views: list[InstanceView]):
    cut = dataclasses.replace(
        views[0],
        tokens=("[CLS]", "##er", "##s", "[SEP]", "##ed", "tea", "[SEP]"),
        segment_b_start=4,
        variants=((),),
    )
    text = instances_printout([cut]).text
    assert "[CLS] ##ers [SEP] ##ed tea [SEP]" in text
    assert "A as read: ##ers\n" in text


def test_byte_level_pieces_are_shown_as_text(tmp_path: Path):
    tokenizer = byte_level_tokenizer(tmp_path)
    pieces = readable_pieces(tokenizer)
    shown = dict(zip(tokenizer.pieces, pieces, strict=True))
    assert (shown["\u0120the"], shown["the"], shown["\u0120"]) == ("the", "##the", "\u2423")
    assert shown["<s>"] == "<s>"
    assert shown["\u00c3\u00a9"] == "##\u00e9"
    assert shown["\u00c3"] == "\u00c3"  # half a character


def byte_level_tokenizer(folder: Path) -> PretrainingTokenizer:
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    letters = [*"the", "\u0120", "\u00c3", "\u00a9"]
    pieces = [*specials, *letters, "th", "the", "\u0120the", "\u00c3\u00a9"]
    vocab = json.dumps({piece: number for number, piece in enumerate(pieces)})
    (folder / "vocab.json").write_text(vocab)
    merges = "t h\nth e\n\u0120 the\n\u00c3 \u00a9\n"
    (folder / "merges.txt").write_text(merges, encoding="utf-8")
    return load_tokenizer(folder)


def test_fewer_variants_can_be_shown(views: list[InstanceView]):
    text = instances_printout(views[:1], most_variants=1).text
    assert "variant 0" in text
    assert "variant 1:" not in text
    assert "... and 2 more variants" in text


def test_instance_is_found_by_its_id(built: Path, views: list[InstanceView]):
    inspector = Inspector(open_dataset(built))
    for digits in (32, 13):
        assert inspector.find(views[7].instance_id[:digits].upper()) == ("train", 7)


@pytest.mark.parametrize(
    ("hex_id", "problem"),
    [
        ("abc", "not an instance id; give 4 to 32"),
        ("../../x", "not an instance id"),
        ("0" * 32, "no instance has an id starting with"),
    ],
)
def test_ids_that_fit_none_are_refused(built: Path, hex_id: str, problem: str):
    with pytest.raises(DatasetError, match=problem):
        Inspector(open_dataset(built)).find(hex_id)


def test_packed_instances_have_numbered_spans(tmp_path: Path):
    folder = build_small(tmp_path, recipe="roberta-full", mask_variants=0, validation_fraction=0.0)
    views = Inspector(open_dataset(folder)).describe("train", range(10))
    assert max(len(view.spans) for view in views) > 1
    for view in views:
        assert [span.segment for span in view.spans] == [str(i + 1) for i in range(len(view.spans))]
        assert view.next_sentence is None
    text = instances_printout(views).text
    assert "tokens as read: " in text
    assert LEGEND not in text


def test_kept_copies_lead_back_to_their_own_records(tmp_path: Path):
    text = "W1 w2 w3 w4. W5 w6 w7. W8 w9 w10 w11. W12 w13."
    records = [{"id": f"copy-{i}", "text": text, "source": "s9"} for i in range(4)]
    settings = {"duplicates": "keep", "validation_fraction": 0.0}
    folder = build_small(tmp_path, records=records, **settings)
    dataset = open_dataset(folder)
    numbers = range(dataset.num_instances("train"))
    views = Inspector(dataset).describe("train", numbers)
    spans = [span for view in views if view.source == "s9" for span in view.spans[:1]]
    assert {span.external_id for span in spans} == {f"copy-{i}" for i in range(4)}
    assert len({span.document_id for span in spans}) == 4
    corpus = (tmp_path / "corpus.jsonl").read_bytes()
    for span in spans:
        assert span.note == ""
        assert span.sentences
        assert span.offset is not None
        assert json.loads(corpus[span.offset :].split(b"\n")[0])["id"] == span.external_id


def test_changed_and_lost_inputs_are_told_not_hidden(tmp_path: Path):
    folder = build_small(tmp_path)
    inspector = Inspector(open_dataset(folder))
    write_corpus(tmp_path / "corpus.jsonl", seed=1)
    (view,) = inspector.describe("train", [0])
    assert "has another text" in view.spans[0].note or "no document at" in view.spans[0].note
    (tmp_path / "corpus.jsonl").unlink()
    (view,) = inspector.describe("train", [0])
    assert view.spans[0].sentences == ()
    assert "corpus.jsonl" in view.spans[0].note
    (folder / "build.log.jsonl").unlink()
    assert "build.log.jsonl" in inspector.describe("train", [0])[0].spans[0].note
    (folder / "origins.jsonl").write_bytes(b"\xff{]\n")
    (view,) = inspector.describe("train", [0])
    assert "origins.jsonl does not tell" in view.spans[0].note
    assert "no text: origins.jsonl" in instances_printout([view]).text


def move_origins(folder: Path, place: str) -> None:
    """Write another file and offset, as they stand in JSON, into each line of the origins."""
    path = folder / "origins.jsonl"
    lines = [line.split(', "file"')[0] + f", {place}}}" for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("place", "note"),
    [
        ('"file": "{0}/corpus.jsonl", "offset": 1e9990', "origins.jsonl does not tell"),
        ('"file": "{0}/corpus.jsonl", "offset": 0, "copy": -1', "origins.jsonl does not tell"),
        ('"file": "{0}/corpus.jsonl", "offset": 1e300', "is no place in a file"),
        ('"file": "{0}/corpus.jsonl", "offset": -1', "-1 is no place in a file"),
        ('"file": "{0}/pipe.jsonl", "offset": 0', "pipe.jsonl is not a regular file"),
        ('"file": "/dev/zero", "offset": 0', "/dev/zero is not a regular file"),
        ('"file": "{0}", "offset": 0', "is not a regular file"),
        ('"file": "a\\u0000b.jsonl", "offset": 0', "embedded null byte"),
        ('"file": "http://a.invalid/b.jsonl", "offset": 0', "http://a.invalid/b.jsonl is not on"),
        ('"file": "filecache::http://a.invalid/b.jsonl", "offset": 0', "is not on this machine"),
        ('"file": "hf:a/b", "offset": 0', "hf:a/b is not on this machine"),
        ('"file": ' + "[" * 100_000 + ', "offset": 0', "origins.jsonl does not tell"),
    ],
)
def test_no_pipe_device_or_other_machine_is_read(tmp_path: Path, place: str, note: str):
    folder = build_small(tmp_path)
    os.mkfifo(tmp_path / "pipe.jsonl")
    move_origins(folder, place.replace("{0}", str(tmp_path)))
    (view,) = Inspector(open_dataset(folder)).describe("train", [0])
    assert view.spans[0].sentences == ()
    assert note in view.spans[0].note


def test_other_machines_are_asked_if_told_to(tmp_path: Path):
    folder = build_small(tmp_path)
    path = folder / "origins.jsonl"
    path.write_text(path.read_text().replace('"file": "/', '"file": "file:///'))
    dataset = open_dataset(folder)
    (view,) = Inspector(dataset).describe("train", [0])
    assert view.spans[0].sentences == ()
    assert view.spans[0].note.endswith("is not on this machine; --follow-origins reads it there.")
    (view,) = Inspector(dataset, follows_remote=True).describe("train", [0])
    assert view.spans[0].sentences


@pytest.mark.parametrize("content", ["[1]", '{"identity": 3}', "[" * 100_000])
def test_a_log_of_something_else_tells_nothing(tmp_path: Path, content: str):
    folder = build_small(tmp_path)
    (folder / "build.log.jsonl").write_text(content)
    (view,) = Inspector(open_dataset(folder)).describe("train", [0])
    assert view.spans[0].note == "build.log.jsonl does not tell how it was read"
    convert_dataset(folder, tmp_path / "out")
    assert verify_dataset(tmp_path / "out") == []


def test_pipes_beside_the_shards_are_not_waited_for(tmp_path: Path):
    folder = build_small(tmp_path)
    for name in ("origins.jsonl", "build.log.jsonl"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
    (view,) = Inspector(open_dataset(folder)).describe("train", [0])
    assert view.spans[0].note == "origins.jsonl does not tell where it was read"
    convert_dataset(folder, tmp_path / "out")
    assert verify_dataset(tmp_path / "out") == []


def test_a_label_of_its_own_is_shown_as_such(tmp_path: Path):
    folder = build_small(tmp_path)

    def relabel(columns: InstanceColumns) -> InstanceColumns:
        return columns._replace(next_sentence_label=np.full_like(columns.next_sentence_label, 7))

    spoil(folder, relabel)
    (view,) = Inspector(open_dataset(folder)).describe("train", [0])
    assert view.next_sentence == "label 7"


def test_hostile_text_is_shown_and_not_obeyed(tmp_path: Path):
    text = "[bold red]W1 w2[/] \x1b[2J\x07 :smile: w3 \u202ew4. W5 w6 w7. W8 w9 w10."
    record = {"id": "[link=x]\x1b]0;me\x07", "text": text, "source": "\x9b31m"}
    folder = build_small(tmp_path, validation_fraction=0.0, records=[record])
    dataset = open_dataset(folder)
    numbers = range(dataset.num_instances("train"))
    views = [v for v in Inspector(dataset).describe("train", numbers) if "\x9b" in v.source]
    assert views
    for is_terminal in (False, True):
        shown = instances_printout(views, width=10_000, is_terminal=is_terminal).text
        assert "[bold red]" in shown
        assert ":smile:" in shown
        assert "[link=x]\\x1b]0;me\\x07" in shown
        for bad in ("\x07", "\x9b", "\u202e", "\x1b[2J", "\x1b]"):
            assert bad not in shown


def test_lone_surrogates_and_breaks_are_written_out():
    assert visible("a\nb\tc\ud800\x00") == "a b c\\ud800\\x00"


def test_positions_outside_the_instance_are_an_error_not_a_crash(tmp_path: Path):
    def move(columns: InstanceColumns) -> InstanceColumns:
        masks = columns.masks
        assert masks is not None
        positions = masks.positions.copy()
        positions[0] = 200
        return columns._replace(masks=masks._replace(positions=positions))

    folder = build_small(tmp_path)
    spoil(folder, move)
    with pytest.raises(DatasetError, match="selects position 200 of an instance"):
        Inspector(open_dataset(folder)).describe("train", [0])

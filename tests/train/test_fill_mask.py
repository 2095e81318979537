"""What stands at a mask: the same tokens and numbers as `transformers` finds."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.model.small_models import small_model
from tests.pipeline.small_corpora import SPECIALS, make_texts, write_tokenizer
from tests.train.small_readings import BuiltDataset
from tests.train.trained_runs import train_briefly
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from clozemill.model.convert import save_pretrained
from clozemill.pipeline.encode import make_encoder
from clozemill.pipeline.errors import InputError, ModelError, RunError, TokenizerError
from clozemill.pipeline.tokenizer import PretrainingTokenizer, load_tokenizer, make_tokenizer
from clozemill.pipeline.tokenizer_files import wordpiece_state
from clozemill.pipeline.tokenizer_saving import save_tokenizer
from clozemill.train.encoders import find_encoder, find_tokenizer
from clozemill.train.export import export_run
from clozemill.train.fill_mask import encode_masked, fill_mask

TEXTS = [
    "Tea [MASK] cold.",
    "[MASK]",
    "  The [MASK], and un[MASK]ful [MASK] [MASK]!",
    "Bala dose [MASK]\u000cbobi, don't\tgo to \u00d6l\u00fc.",
]


@pytest.fixture(scope="module")
def run(built: BuiltDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    train_briefly(built().folder, out)
    return out


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PretrainingTokenizer:
    return load_tokenizer(write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "t"))


def test_transformers_fills_masks_with_the_same_tokens_and_numbers(
    run: Path, tmp_path: Path
) -> None:
    export_run(run, tmp_path / "model")
    pipeline = transformers.pipeline("fill-mask", model=str(tmp_path / "model"), top_k=7)
    encoder = find_encoder(run)
    for text in TEXTS:
        # The pipeline's tokenizer deletes a form feed, where a build reads a blank.
        found = pipeline(text.replace("\f", " "))
        expected = found if isinstance(found[0], list) else [found]
        filled = fill_mask(encoder.model, find_tokenizer(encoder), text, top_k=7)
        assert len(filled.masks) == text.count("[MASK]") == len(expected)
        for mask, theirs in zip(filled.masks, expected, strict=True):
            ours = [(c.token_id, c.token) for c in mask.candidates]
            assert ours == [(c["token"], pipeline.tokenizer.decode(c["token"])) for c in theirs]
            for candidate, other in zip(mask.candidates, theirs, strict=True):
                assert candidate.probability == pytest.approx(other["score"], rel=1e-4)


def test_run_checkpoint_and_export_fill_alike(run: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path / "model")
    filled = []
    for path in (run, run / "checkpoints" / "step-00000009", tmp_path / "model"):
        encoder = find_encoder(path)
        filled.append(fill_mask(encoder.model, find_tokenizer(encoder), TEXTS[0]))
    assert filled[0] == filled[1] == filled[2]
    (mask,) = filled[0].masks
    assert filled[0].tokens[mask.position] == "[MASK]"
    probabilities = [candidate.probability for candidate in mask.candidates]
    assert len(probabilities) == 5
    assert probabilities == sorted(probabilities, reverse=True)


def test_a_bert_of_transformers_is_filled_too(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "bert")
    tokenizer = load_tokenizer(tmp_path / "bert")
    config = transformers.BertConfig(
        vocab_size=tokenizer.vocab_size + 3,  # rounded up, as some are
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=16,
    )
    theirs = transformers.BertForMaskedLM(config).eval()
    with torch.no_grad():
        theirs.cls.predictions.bias[-3:] = 50.0  # ids that no token has
    theirs.save_pretrained(tmp_path / "bert")
    encoder = find_encoder(tmp_path / "bert")
    filled = fill_mask(encoder.model, find_tokenizer(encoder), "Tea is [MASK].", top_k=9_999)
    found = {c.token_id: c.probability for c in filled.masks[0].candidates}
    assert sorted(found) == list(range(tokenizer.vocab_size))
    ids = torch.tensor([encode_masked(tokenizer, "Tea is [MASK].")])
    with torch.inference_mode():
        expected = theirs(ids).logits[0, filled.masks[0].position].double().softmax(0)
    assert torch.tensor([found[i] for i in range(len(found))]) == pytest.approx(
        expected[:-3].float(), rel=1e-4
    )


def test_several_masks_are_filled_each_by_itself(tokenizer: PretrainingTokenizer) -> None:
    model = small_model(vocab_size=tokenizer.vocab_size)
    filled = fill_mask(model, tokenizer, "A [MASK] of [MASK].", top_k=1)
    assert len({mask.position for mask in filled.masks}) == 2
    ids = torch.tensor([encode_masked(tokenizer, "A [MASK] of [MASK].")])
    with torch.inference_mode():
        best = model(ids).prediction_logits[0].argmax(-1)
    for mask in filled.masks:
        assert ids[0, mask.position] == tokenizer.mask_id
        assert mask.candidates[0].token_id == best[mask.position]


# How the text is read


def test_a_text_has_the_ids_that_a_build_gives_it(tokenizer: PretrainingTokenizer) -> None:
    encoder = make_encoder(tokenizer)
    texts = make_texts(30, most_sentences=2)
    assert len(texts) == 30
    for text in texts:
        (cls, *inner, mask, sep) = encode_masked(tokenizer, f"{text} [MASK]")
        assert (cls, mask, sep) == (tokenizer.cls_id, tokenizer.mask_id, tokenizer.sep_id)
        assert inner == encoder.encode([text]).token_ids.tolist()


def test_only_the_mask_is_more_than_text(tokenizer: PretrainingTokenizer) -> None:
    ids = encode_masked(tokenizer, "[SEP] a [MASK] [CLS] [PAD] [mask]")
    assert [i for i in ids[1:-1] if i in tokenizer.special_ids] == [tokenizer.mask_id]
    inner = encode_masked(tokenizer, "[MASK] [SEP]")[2:-1]
    assert inner == make_encoder(tokenizer).encode(["[SEP]"]).token_ids.tolist()


def test_a_special_token_that_text_spells_without_brackets_is_unknown() -> None:
    state = wordpiece_state(
        ["pad", "unk", "cls", "sep", "[MASK]", "tea"], normalizers.BertNormalizer(), "unk"
    )
    roles = {f"{role}_token": role for role in ("pad", "unk", "cls", "sep")}
    tokenizer = make_tokenizer(state, config={**roles, "mask_token": "[MASK]"}, name="test")
    assert encode_masked(tokenizer, "tea sep [MASK] cls") == [2, 5, 1, 4, 1, 3]


def test_byte_level_words_keep_their_blanks_around_a_mask(tmp_path: Path) -> None:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=specials, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    backend.train_from_iterator(make_texts(20), trainer)
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    save_tokenizer(tokenizer, tmp_path / "saved")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    for text in ("Bala <mask> dose.", "<mask>.", "Bala<mask>dose <mask>"):
        # In a dataset a sentence begins with a blank, which is its first word's.
        assert encode_masked(tokenizer, text) == theirs(f" {text}")["input_ids"]


# What cannot be filled


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"the text has no \[MASK\]; write \[MASK\] in the place of a word"),
        ("Tea is [mask].", r"the text has no \[MASK\]"),
        ("[MASK] \udcff", r"the text '\[MASK\] \\\\xff' is not UTF-8; type it otherwise"),
        ("[MASK]" + " tea" * 40, r"has \d+ tokens with \[CLS\] and \[SEP\], but the model reads"),
    ],
)
def test_a_text_that_cannot_be_filled_is_refused(
    tokenizer: PretrainingTokenizer, text: str, message: str
) -> None:
    model = small_model(vocab_size=tokenizer.vocab_size)
    with pytest.raises(InputError, match=message):
        fill_mask(model, tokenizer, text)


def test_the_longest_text_is_filled(tokenizer: PretrainingTokenizer) -> None:
    model = small_model(vocab_size=tokenizer.vocab_size)
    text = "[MASK]" + " ." * (model.config.max_position_embeddings - 3)
    assert len(fill_mask(model, tokenizer, text).tokens) == model.config.max_position_embeddings
    with pytest.raises(InputError, match="41 tokens .* at most 40; shorten it"):
        fill_mask(model, tokenizer, text + ".")


def test_a_tokenizer_of_another_model_is_refused(tokenizer: PretrainingTokenizer) -> None:
    model = small_model(vocab_size=tokenizer.vocab_size - 1)
    with pytest.raises(ModelError, match=r"has \d+ tokens, but the model knows \d+; give the mo"):
        fill_mask(model, tokenizer, "[MASK]")


def test_weights_that_are_not_finite_fill_nothing(tokenizer: PretrainingTokenizer) -> None:
    model = small_model(vocab_size=tokenizer.vocab_size)
    with torch.no_grad():
        model.cls.predictions.bias[3] = torch.nan
    with pytest.raises(ModelError, match="weights are not finite; take an earlier checkpoint"):
        fill_mask(model, tokenizer, "[MASK]")


def test_a_model_without_its_tokenizer_asks_for_it(
    built: BuiltDataset, run: Path, tmp_path: Path
) -> None:
    model = small_model(vocab_size=len(SPECIALS))
    save_pretrained(model, tmp_path / "bare")
    with pytest.raises(TokenizerError, match="holds no tokenizer; it needs one of tokenizer.json"):
        find_tokenizer(find_encoder(tmp_path / "bare"))
    data = tmp_path / "data"
    shutil.copytree(built().folder, data)
    train_briefly(data, tmp_path / "run", steps=1)
    data.rename(tmp_path / "moved")
    encoder = find_encoder(tmp_path / "run")
    with pytest.raises(RunError, match=r"not there; .* --tokenizer. The next time, let clozemill"):
        find_tokenizer(encoder)
    given: Any = find_tokenizer(encoder, tmp_path / "moved" / "tokenizer")
    assert given.hash == built().manifest.tokenizer.hash

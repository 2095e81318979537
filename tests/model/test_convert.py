"""Folders of Hugging Face's form: ours, theirs, old ones, and those of enemies."""

import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import torch.distributed
import transformers
from tests.model.small_models import (
    perturb,
    pull,
    small_batch,
    small_config,
    small_model,
    twin_of,
    worst,
)
from torch import Tensor, nn

from clozemill.model.convert import load_pretrained, save_pretrained
from clozemill.model.flops import num_parameters
from clozemill.pipeline.errors import DatasetError, ModelError

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model that we saved."""
    save_pretrained(small_model(), tmp_path / "saved")
    return tmp_path / "saved"


def tensors_of(folder: Path) -> dict[str, Tensor]:
    return dict(safetensors.torch.load_file(folder / WEIGHTS))


def rewrite(
    folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]], **entries: Any
) -> None:
    """Change a folder's tensors and entries of its configuration."""
    tensors = {name: tensor.clone() for name, tensor in change(tensors_of(folder)).items()}
    safetensors.torch.save_file(tensors, folder / WEIGHTS)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def assert_same_weights(found: nn.Module, expected: nn.Module) -> None:
    states = found.state_dict(), expected.state_dict()
    assert states[0].keys() == states[1].keys()
    assert len(states[0]) > 40
    for name in states[0]:
        assert states[0][name].dtype == states[1][name].dtype == torch.float32
        assert torch.equal(states[0][name], states[1][name]), name


# Out and in again


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "pad_token_id": 3},
        {"next_sentence": False},
        {"causal": True},
        {"causal": True, "next_sentence": False, "hidden_dropout_prob": 0.2},
    ],
)
def test_a_saved_model_comes_back_byte_for_byte(tmp_path: Path, changes: dict[str, Any]):
    model = small_model(**changes)
    save_pretrained(model, tmp_path / "a")
    loaded = load_pretrained(tmp_path / "a")
    assert loaded.config == model.config
    assert_same_weights(loaded, model)
    save_pretrained(loaded, tmp_path / "b")
    for name in ("config.json", WEIGHTS):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["config.json", WEIGHTS]


def test_a_model_of_transformers_comes_back_byte_for_byte(tmp_path: Path):
    theirs = transformers.BertForPreTraining(
        transformers.BertConfig(
            vocab_size=99, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
            intermediate_size=40, max_position_embeddings=16,
        )
    )  # fmt: skip
    perturb(theirs)
    theirs.save_pretrained(tmp_path / "theirs")
    model = load_pretrained(tmp_path / "theirs").eval()
    assert_same_weights(model, theirs)
    save_pretrained(model, tmp_path / "ours")
    before, after = tensors_of(tmp_path / "theirs"), tensors_of(tmp_path / "ours")
    assert before.keys() == after.keys()
    assert all(before[name].numpy().tobytes() == after[name].numpy().tobytes() for name in before)
    batch = small_batch([9, 4], 9)
    ids, types = batch.input_ids % 99, batch.token_type_ids % 2
    expected = theirs.eval()(ids, batch.attention_mask, types).prediction_logits
    assert worst(model(ids, types, batch.attention_mask).prediction_logits, expected) <= 1e-6


def test_the_file_holds_each_tensor_once_in_float32(folder: Path):
    config = small_config()
    with safetensors.safe_open(folder / WEIGHTS, "pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert len(list(file.keys())) == 14 + 16 * 3
    assert all(tensor.dtype == torch.float32 for tensor in tensors_of(folder).values())
    size = (folder / WEIGHTS).stat().st_size
    assert 4 * num_parameters(config) < size < 4 * num_parameters(config) + 10_000


def test_loading_draws_no_random_numbers(folder: Path):
    state = torch.get_rng_state()
    load_pretrained(folder)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_loaded_model_is_not_the_file(folder: Path):
    model = load_pretrained(folder)
    with torch.no_grad():
        model.cls.predictions.bias.add_(1)
    assert torch.equal(load_pretrained(folder).cls.predictions.bias + 1, model.cls.predictions.bias)


def test_extra_entries_are_kept_and_none_replaces_a_field(tmp_path: Path):
    model = small_model()
    save_pretrained(model, tmp_path, extra_config={"dataset_digest": "ab" * 32})
    assert transformers.AutoConfig.from_pretrained(tmp_path).dataset_digest == "ab" * 32
    assert load_pretrained(tmp_path).config == model.config
    with pytest.raises(ModelError) as caught:
        save_pretrained(model, tmp_path, extra_config={"hidden_size": 9})
    assert str(caught.value) == (
        "extra_config has the entry 'hidden_size', which the model sets itself."
    )


@pytest.fixture
def process_group() -> Iterator[None]:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_wrappers_leave_no_trace_in_the_file(tmp_path: Path, folder: Path):
    parallel = nn.parallel.DistributedDataParallel(small_model())
    partly = small_model()
    partly.bert.encoder.layer[1] = torch.compile(partly.bert.encoder.layer[1], backend="eager")
    plain = small_model().state_dict().keys()
    for number, model in enumerate([parallel, torch.compile(parallel, backend="eager"), partly]):
        assert model.state_dict().keys() != plain
        save_pretrained(model, tmp_path / str(number))
        for name in ("config.json", WEIGHTS):
            assert (tmp_path / str(number) / name).read_bytes() == (folder / name).read_bytes()


def test_what_is_no_bert_cannot_be_saved(tmp_path: Path):
    with pytest.raises(TypeError, match="expected a BertForPreTraining, got Linear"):
        save_pretrained(nn.Linear(2, 2), tmp_path)


def test_a_model_of_16_bits_is_saved_in_32(tmp_path: Path):
    model = small_model().to(torch.bfloat16)
    save_pretrained(model, tmp_path)
    assert_same_weights(load_pretrained(tmp_path), model.to(torch.float32))


def test_saving_again_replaces_and_a_failure_leaves_the_old_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    other = small_model(seed=9)
    save_pretrained(other, folder)
    assert_same_weights(load_pretrained(folder), other)
    (folder / "tokenizer.json").write_text("{}")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DatasetError, match="No space left on device"):
        save_pretrained(small_model(), folder)
    monkeypatch.undo()
    assert_same_weights(load_pretrained(folder), other)
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", WEIGHTS, "tokenizer.json"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError) as caught:
        save_pretrained(small_model(), tmp_path / "file" / "model")
    assert str(caught.value) == (
        f"cannot make the folder {tmp_path}/file/model: Not a directory; choose another one."
    )


# Report: tied output weights missing after a load, or loaded apart


def test_a_load_keeps_the_tie_through_a_further_step(folder: Path):
    model, loaded = small_model(), load_pretrained(folder).eval()
    words = loaded.bert.embeddings.word_embeddings.weight
    assert loaded.cls.predictions.decoder.weight.data_ptr() == words.data_ptr()
    batch = small_batch()
    assert torch.equal(model(*batch).prediction_logits, loaded(*batch).prediction_logits)
    losses = []
    for each in (model, loaded):
        optimizer = torch.optim.AdamW(each.parameters(), lr=0.01)
        pull(each(*batch)).backward()
        optimizer.step()
        losses.append(pull(each(*batch)).item())
    assert losses[0] == losses[1]
    assert_same_weights(loaded, model)
    assert loaded.cls.predictions.decoder.weight is words


# Report: exported models that lack the pooler


def load_with_report(name: str, folder: Path) -> tuple[Any, dict[str, list[str]]]:
    model, report = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not report["mismatched_keys"]
    return model.eval(), {k: sorted(report[k]) for k in ("missing_keys", "unexpected_keys")}


def test_transformers_loads_the_export_with_nothing_missing_or_left_over(folder: Path):
    theirs, report = load_with_report("BertForPreTraining", folder)
    assert report == {"missing_keys": [], "unexpected_keys": []}
    model, batch = small_model(), small_batch()
    ours = model(*batch)
    output = theirs(batch.input_ids, batch.attention_mask, batch.token_type_ids)
    assert worst(ours.prediction_logits, output.prediction_logits) <= 1e-6
    assert worst(ours.seq_relationship_logits, output.seq_relationship_logits) <= 1e-6
    assert_same_weights(theirs, model)


def test_transformers_finds_in_the_export_what_other_tasks_need(folder: Path):
    model = small_model()
    _, report = load_with_report("BertForMaskedLM", folder)
    assert report["missing_keys"] == []
    theirs, report = load_with_report("BertForSequenceClassification", folder)
    assert report["missing_keys"] == ["classifier.bias", "classifier.weight"]
    assert torch.equal(theirs.bert.pooler.dense.weight, model.bert.pooler.dense.weight)
    _, report = load_with_report("BertModel", folder)
    assert report["missing_keys"] == []


@pytest.mark.parametrize(
    ("causal", "name"), [(False, "BertForMaskedLM"), (True, "BertLMHeadModel")]
)
def test_without_next_sentence_the_export_has_no_pooler(tmp_path: Path, causal: bool, name: str):
    model = small_model(next_sentence=False, causal=causal)
    save_pretrained(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [name]
    theirs, report = load_with_report(name, tmp_path)
    assert report == {"missing_keys": [], "unexpected_keys": []}
    batch = small_batch()
    output = theirs(batch.input_ids, batch.attention_mask, batch.token_type_ids)
    assert worst(model(*batch).prediction_logits, output.logits) <= 1e-6
    _, report = load_with_report("BertForSequenceClassification", tmp_path)
    assert "bert.pooler.dense.weight" in report["missing_keys"]


def test_a_masked_language_model_of_transformers_loads_without_next_sentence(tmp_path: Path):
    theirs = twin_of(small_model(next_sentence=False))
    theirs.save_pretrained(tmp_path)
    model = load_pretrained(tmp_path)
    assert not model.config.next_sentence
    assert_same_weights(model, theirs)


def test_pooler_and_head_can_be_left_out_but_not_made_up(folder: Path):
    model = load_pretrained(folder, next_sentence=False)
    assert not model.config.next_sentence
    assert len(model.state_dict()) == 12 + 16 * 3
    assert load_pretrained(folder, next_sentence=True).config.next_sentence
    save_pretrained(model, folder)
    with pytest.raises(ModelError) as caught:
        load_pretrained(folder, next_sentence=True)
    assert str(caught.value) == (
        f"{folder} has no pooler and no next-sentence head, but both were asked for; load it "
        "without next_sentence."
    )


def test_a_pooler_alone_is_not_loaded_in_silence(folder: Path):
    rewrite(folder, lambda t: {k: v for k, v in t.items() if "seq_relationship" not in k})
    with pytest.raises(ModelError) as caught:
        load_pretrained(folder)
    assert str(caught.value) == (
        f"{folder} has a pooler and no next-sentence head, which belong together; load it "
        "without next_sentence."
    )
    assert not load_pretrained(folder, next_sentence=False).config.next_sentence


# Folders of other times and tools


def old_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    def old(name: str) -> str:
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        return name.replace("LayerNorm.bias", "LayerNorm.beta")

    buffer = {"bert.embeddings.position_ids": torch.arange(40)[None]}
    return {old(name): tensor for name, tensor in tensors.items()} | buffer


def with_prefix(prefix: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {prefix + name: tensor for name, tensor in tensors.items()}


def with_both_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return tensors | {
        "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"],
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"],
    }


def with_second_names_alone(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    both = with_both_names(tensors)
    del both["bert.embeddings.word_embeddings.weight"], both["cls.predictions.bias"]
    return both


@pytest.mark.parametrize(
    "change",
    [
        old_names,
        with_prefix("module."),
        with_prefix("_orig_mod."),
        with_prefix("module._orig_mod."),
        with_both_names,
        with_second_names_alone,
    ],
)
def test_names_of_other_times_and_tools_are_understood(
    folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]
):
    rewrite(folder, change)
    assert_same_weights(load_pretrained(folder), small_model())


def test_weights_in_several_files_are_put_together(tmp_path: Path):
    twin_of(small_model()).save_pretrained(tmp_path, max_shard_size="30KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert not (tmp_path / WEIGHTS).exists()
    assert_same_weights(load_pretrained(tmp_path), small_model())


def test_half_precision_is_widened(folder: Path):
    rewrite(folder, lambda t: {k: v.half() for k, v in t.items()})
    model = load_pretrained(folder)
    assert_same_weights(model, small_model().half().float())


def test_a_short_configuration_means_hugging_faces_defaults(folder: Path):
    path = folder / "config.json"
    entries = json.loads(path.read_text())
    kept = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size",
            "num_attention_heads", "max_position_embeddings", "type_vocab_size")  # fmt: skip
    path.write_text(json.dumps({k: entries[k] for k in kept} | {"pad_token_id": None}))
    config = load_pretrained(folder).config
    theirs = transformers.BertConfig()
    for name in ("hidden_act", "hidden_dropout_prob", "layer_norm_eps", "initializer_range"):
        assert getattr(config, name) == getattr(theirs, name)


# What does not fit is named


WORDS = "bert.embeddings.word_embeddings.weight"
BIAS = "cls.predictions.bias"


def without(*names: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {k: v for k, v in tensors.items() if k not in names}


def plus(**extra: Tensor) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: tensors | {k.replace("__", "."): v for k, v in extra.items()}


def unchanged(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return tensors


@pytest.mark.parametrize(
    ("change", "entries", "text"),
    [
        (without("bert.encoder.layer.1.output.dense.bias"), {},
         "FOLDER has no tensor bert.encoder.layer.1.output.dense.bias; name a folder with a BERT "
         "and its head for masked tokens."),
        (without(BIAS, WORDS), {},
         f"FOLDER has no tensor {WORDS}; name a folder with a BERT and its head for masked "
         "tokens."),
        (plus(classifier__weight=torch.ones(2, 2)), {},
         "FOLDER has the tensor classifier.weight, which BERT for pretraining has not; name a "
         "folder of BertForPreTraining or BertForMaskedLM."),
        (plus(cls__predictions__bias=torch.zeros(200)), {},
         f"{BIAS} in FOLDER has shape (200,), but config.json asks for (211,), with vocab_size "
         "211; copy the folder again, or correct config.json."),
        (unchanged, {"vocab_size": 210},
         f"{WORDS} in FOLDER has shape (211, 48), but config.json asks for (210, 48), with "
         "vocab_size 210; copy the folder again, or correct config.json."),
        (plus(cls__predictions__bias=torch.zeros(211, dtype=torch.int64)), {},
         f"{BIAS} in FOLDER holds torch.int64; weights are floating-point numbers."),
        (unchanged, {"num_hidden_layers": 4},
         "FOLDER has no tensor bert.encoder.layer.3.attention.self.query.weight; name a folder "
         "with a BERT and its head for masked tokens."),
        (unchanged, {"num_hidden_layers": 10**9},
         "FOLDER has 62 tensors, too few for the 1000000000 layers of its config.json; copy the "
         "folder again, or correct config.json."),
        (plus(cls__predictions__decoder__weight=torch.zeros(211, 48)), {},
         f"FOLDER has different values for cls.predictions.decoder.weight and {WORDS}; only a "
         "model that predicts with its table of token embeddings can be loaded."),
        (plus(cls__predictions__decoder__bias=torch.zeros(200)), {},
         f"FOLDER has different values for cls.predictions.decoder.bias and {BIAS}; only a "
         "model that predicts with its table of token embeddings can be loaded."),
        (unchanged, {"tie_word_embeddings": False},
         "FOLDER has no cls.predictions.decoder.weight, but its config.json says that it is not "
         "tied (tie_word_embeddings); save the model again."),
        (plus(module__cls__predictions__bias=torch.zeros(211)), {},
         f"FOLDER has two tensors {BIAS}; copy the folder again."),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_are_refused_by_name(
    folder: Path, change: Callable[..., Any], entries: dict[str, Any], text: str
):
    rewrite(folder, change, **entries)
    with pytest.raises(ModelError) as caught:
        load_pretrained(folder)
    assert str(caught.value) == text.replace("FOLDER", str(folder))


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"model_type": "roberta"}, "has model_type 'roberta'; only bert can be loaded."),
        ({"position_embedding_type": "relative_key"}, "has position_embedding_type "
         "'relative_key'; only absolute positions can be loaded."),
        ({"vocab_size": None}, "has no vocab_size; copy the folder again."),
        ({"hidden_size": "48"}, "cannot be used: hidden_size is '48'; it must be a whole number."),
        ({"num_hidden_layers": 2.0}, "cannot be used: num_hidden_layers is 2.0; it must be a whole "
         "number."),
        ({"hidden_act": {"a": 1}}, "cannot be used: hidden_act is {'a': 1}; it must be text."),
        ({"hidden_act": "relu"}, "cannot be used: hidden_act is 'relu'; it must be gelu or "
         "gelu_new."),
        ({"layer_norm_eps": [1]}, "cannot be used: layer_norm_eps is [1]; it must be a number."),
        ({"is_decoder": "yes"}, "cannot be used: causal is 'yes'; it must be true or false."),
        ({"num_attention_heads": 5}, "cannot be used: hidden_size is 48 and num_attention_heads "
         "is 5; the heads must divide the features evenly."),
    ],
)  # fmt: skip
def test_a_configuration_that_cannot_be_used_is_said(
    folder: Path, entries: dict[str, Any], text: str
):
    rewrite(folder, unchanged, **entries)
    with pytest.raises(ModelError) as caught:
        load_pretrained(folder)
    assert str(caught.value) == f"{folder / 'config.json'} {text}"


# Nothing that is loaded can run code, or take the machine down


class Bomb:
    """Runs a command when unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.mark}",)


def damaged(data: bytes) -> dict[str, bytes]:
    header = struct.unpack("<Q", data[:8])[0]
    text = data[8 : 8 + header]
    shifted = text.replace(b'"data_offsets":[0,', b'"data_offsets":[9,', 1)
    assert shifted != text
    return {
        "empty": b"",
        "short": data[: len(data) // 2],
        "without its last byte": data[:-1],
        "header cut": data[: 8 + header // 2],
        "huge header": struct.pack("<Q", 2**62) + data[8:],
        "header of 300 MB": struct.pack("<Q", 300 << 20) + data[8:],
        "no JSON": struct.pack("<Q", header) + b"x" * header + data[8 + header :],
        "offsets": data[:8] + shifted + data[8 + header :],
        "text": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
    }


def test_damaged_weights_are_refused(folder: Path):
    cases = damaged((folder / WEIGHTS).read_bytes())
    assert len(cases) == 9
    for name, data in cases.items():
        (folder / WEIGHTS).write_bytes(data)
        with pytest.raises(ModelError) as caught:
            load_pretrained(folder)
        text = str(caught.value)
        assert text.startswith(f"{folder / WEIGHTS} cannot be read as safetensors ("), name
        assert text.endswith("; copy it again."), name
        assert "\n" not in text
        assert len(text) < 400


def test_a_pickle_is_never_opened(folder: Path, tmp_path: Path):
    bomb = pickle.dumps(Bomb(tmp_path / "ran"))
    (folder / WEIGHTS).write_bytes(bomb)  # under the name of safetensors
    with pytest.raises(ModelError, match="cannot be read as safetensors"):
        load_pretrained(folder)
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(bomb)
    with pytest.raises(ModelError) as caught:
        load_pretrained(folder)
    assert str(caught.value) == (
        f"{folder} has its weights in pytorch_model.bin, a pickle, which can run code when it is "
        "loaded; convert it with transformers' save_pretrained if you trust it."
    )
    assert not (tmp_path / "ran").exists()
    pickle.loads(bomb)
    assert (tmp_path / "ran").exists()  # it would have


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"3", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": ' * 100_000, b"9" * 10_000],
)
def test_a_configuration_that_is_no_json_object_is_refused(folder: Path, data: bytes):
    (folder / "config.json").write_bytes(data)
    with pytest.raises(ModelError) as caught:
        load_pretrained(folder)
    assert str(caught.value) == (
        f"{folder / 'config.json'} is not a JSON object; copy the folder again."
    )


def test_a_configuration_without_end_is_not_read(folder: Path):
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("/dev/zero")
    with pytest.raises(ModelError, match="it is not a regular file"):
        load_pretrained(folder)
    (folder / "config.json").unlink()
    with (folder / "config.json").open("wb") as file:
        file.truncate(1 << 33)  # takes no room on the disk
    with pytest.raises(ModelError, match="is not a JSON object"):
        load_pretrained(folder)


def test_weights_that_are_a_pipe_are_not_waited_for(folder: Path):
    (folder / WEIGHTS).unlink()
    os.mkfifo(folder / WEIGHTS)
    with pytest.raises(ModelError, match="it is not a regular file"):
        load_pretrained(folder)


@pytest.mark.parametrize(
    "index", [{}, {"weight_map": []}, {"weight_map": {}}, {"weight_map": {"a": 3}},
              {"weight_map": {"a": "../../secret.safetensors"}}]
)  # fmt: skip
def test_an_index_names_files_of_its_own_folder(folder: Path, index: dict[str, Any]):
    (folder / WEIGHTS).unlink()
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    with pytest.raises(ModelError) as caught:
        load_pretrained(folder)
    assert str(caught.value) == f"{path} names no files of weights here; copy the folder again."


def test_a_folder_without_a_model_says_so(folder: Path, tmp_path: Path):
    with pytest.raises(ModelError) as caught:
        load_pretrained(tmp_path / "nowhere")
    assert str(caught.value) == (
        f"cannot read {tmp_path}/nowhere/config.json: No such file or directory; name the folder "
        "of a model in Hugging Face's form."
    )
    (folder / WEIGHTS).unlink()
    with pytest.raises(ModelError) as caught:
        load_pretrained(folder)
    assert str(caught.value) == (
        f"{folder} has no model.safetensors; name the folder of a model in Hugging Face's form."
    )
    shutil.rmtree(folder)

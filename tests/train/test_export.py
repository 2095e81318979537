"""Exports are loaded by the real `transformers`, and refused wherever that would go wrong."""

import itertools
import json
import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import transformers
import yaml
from tests.model.small_models import small_model
from tests.pipeline.small_corpora import SPECIALS, make_texts
from tests.train.processes import run_module
from tests.train.small_readings import BuiltDataset
from tests.train.small_runs import small_state
from tests.train.trained_runs import train_briefly
from tokenizers import normalizers

from clozemill.model.convert import load_pretrained
from clozemill.pipeline.encode import make_encoder
from clozemill.pipeline.errors import ConfigError, RunError, TokenizerError
from clozemill.pipeline.tokenizer import load_tokenizer, make_tokenizer
from clozemill.pipeline.tokenizer_files import wordpiece_state
from clozemill.train.checkpoints import MODEL_NAME
from clozemill.train.encoders import find_encoder
from clozemill.train.export import export_run, write_export
from clozemill.train.export_checks import check_like_transformers, check_reloads
from clozemill.train.metrics import EvaluationRow, read_metrics
from clozemill.train.model_card import CardFacts
from clozemill.train.tensors import Tensors, read_tensors

FILES = [
    "README.md",
    "config.json",
    "export.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
]


@pytest.fixture(scope="module")
def run(built: BuiltDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of pairs with room for more positions than its dataset has."""
    out = tmp_path_factory.mktemp("runs") / "small-run"
    train_briefly(built().folder, out, max_position_embeddings=64)
    return out


@pytest.fixture(scope="module")
def export(run: Path) -> Path:
    """The same, exported."""
    out = run.parent / "model"
    report = export_run(run, out)
    assert report.files == tuple(FILES)
    assert report.notices == ()
    return out


@pytest.fixture
def copied_run(run: Path, tmp_path: Path) -> Path:
    """A run that a test may damage."""
    return Path(shutil.copytree(run, tmp_path / "run"))


@pytest.fixture
def copied(export: Path, tmp_path: Path) -> Path:
    """An export that a test may damage."""
    return Path(shutil.copytree(export, tmp_path / "copy"))


def weights_of(run: Path, step: int = 9) -> Tensors:
    return read_tensors(run / "checkpoints" / f"step-{step:08d}" / MODEL_NAME)


def loaded_by(name: str, folder: Path) -> tuple[Any, dict[str, Any]]:
    """Return a model of `transformers`, and what its loading reports, without what is empty."""
    model, report = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    return model.eval(), {key: sorted(names) for key, names in report.items() if names}


# What transformers makes of an export


def test_transformers_loads_an_export_with_equal_logits_and_its_own_class(export: Path) -> None:
    theirs, report = loaded_by("BertForPreTraining", export)
    assert report == {}
    ours = load_pretrained(export).eval()
    ids = torch.randint(0, ours.config.vocab_size, (2, 64), generator=torch.manual_seed(1))
    with torch.inference_mode():
        found, expected = theirs(ids), ours(ids)
    for logits, other in zip(
        (found.prediction_logits, found.seq_relationship_logits), expected, strict=True
    ):
        assert (logits - other).abs().max() <= 1e-6 * other.abs().max()


def test_a_classifier_lacks_nothing_but_its_own_layer_and_has_the_trained_pooler(
    run: Path, export: Path
) -> None:
    """Case P42."""
    model, report = loaded_by("BertForSequenceClassification", export)
    assert report.pop("missing_keys") == ["classifier.bias", "classifier.weight"]
    (unexpected,) = report.values()
    assert all(name.startswith("cls.") for name in unexpected)
    trained = weights_of(run)
    for name in ("weight", "bias"):
        pooler = getattr(model.bert.pooler.dense, name)
        assert torch.equal(pooler, trained[f"bert.pooler.dense.{name}"])
    _, report = loaded_by("BertForMaskedLM", export)
    assert "missing_keys" not in report


def test_the_decoder_is_tied_when_loaded_and_after_a_step(export: Path) -> None:
    """Case P41."""
    model, _ = loaded_by("BertForPreTraining", export)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ids = torch.randint(0, 40, (2, 8), generator=torch.manual_seed(1))
    model(ids, labels=ids, next_sentence_label=torch.tensor([0, 1])).loss.backward()
    optimizer.step()
    table = model.bert.embeddings.word_embeddings.weight
    assert model.cls.predictions.decoder.weight.data_ptr() == table.data_ptr()
    stored = safetensors.torch.load_file(export / "model.safetensors")
    assert not torch.equal(stored["bert.embeddings.word_embeddings.weight"], table)
    assert "cls.predictions.decoder.weight" not in stored


def test_configuration_tells_the_sizes_of_what_is_there(built: BuiltDataset, export: Path) -> None:
    """Case P43: never a number that somebody asked for."""
    config = transformers.AutoConfig.from_pretrained(export)
    tokenizer = transformers.AutoTokenizer.from_pretrained(export)
    assert config.vocab_size == len(tokenizer) == max(tokenizer.get_vocab().values()) + 1
    assert config.max_position_embeddings == tokenizer.model_max_length == 64
    assert config.type_vocab_size == 2
    manifest = built().manifest
    assert config.clozemill["tokenizer_hash"] == manifest.tokenizer.hash
    assert config.clozemill["dataset_digests"] == {
        name: entry.dataset_digest for name, entry in manifest.splits.items()
    }
    assert config.clozemill["step"] == 9


def test_a_run_without_pairs_says_that_no_pooler_was_trained(
    built: BuiltDataset, tmp_path: Path
) -> None:
    """Cases P42 and P43: RoBERTa's packed blocks."""
    data = built(recipe="roberta-full")
    train_briefly(data.folder, tmp_path / "run")
    report = export_run(tmp_path / "run", tmp_path / "model")
    assert report.architecture == "BertForMaskedLM"
    assert [notice for notice in report.notices if "no pooler was trained" in notice]
    assert "no pooler was trained" in (tmp_path / "model" / "README.md").read_text()
    _, found = loaded_by("BertForMaskedLM", tmp_path / "model")
    assert found == {}
    _, found = loaded_by("BertForSequenceClassification", tmp_path / "model")
    assert "bert.pooler.dense.weight" in found["missing_keys"]
    config = transformers.AutoConfig.from_pretrained(tmp_path / "model")
    assert config.architectures == ["BertForMaskedLM"]
    assert config.max_position_embeddings == data.manifest.max_seq_length


@pytest.mark.parametrize("settings", [{}, {"hidden_act": "gelu_new"}])
def test_an_export_comes_back_as_the_run_that_it_was(
    built: BuiltDataset, tmp_path: Path, settings: dict[str, Any]
) -> None:
    train_briefly(built().folder, tmp_path / "run", **settings)
    export_run(tmp_path / "run", tmp_path / "model")
    ours, original = find_encoder(tmp_path / "model").model, find_encoder(tmp_path / "run").model
    assert ours.config == original.config
    for name, tensor in original.state_dict().items():
        assert torch.equal(tensor, ours.state_dict()[name])
    tokenizer = load_tokenizer(tmp_path / "model")
    assert tokenizer.hash == built().manifest.tokenizer.hash


def test_a_resumed_run_and_a_single_checkpoint_can_be_exported(
    built: BuiltDataset, copied_run: Path
) -> None:
    shutil.rmtree(copied_run / "checkpoints" / "step-00000009")
    assert train_briefly(built().folder, copied_run, max_position_embeddings=64).is_finished
    assert export_run(copied_run, copied_run.parent / "a").step == 9
    checkpoint = copied_run / "checkpoints" / "step-00000006"
    report = export_run(checkpoint, copied_run.parent / "b")
    assert (report.step, report.checkpoint) == (6, checkpoint)
    assert "At step 6," in (copied_run.parent / "b" / "README.md").read_text()
    # A copy of the checkpoint alone has no log beside it.
    shutil.copytree(checkpoint, copied_run.parent / "alone")
    report = export_run(copied_run.parent / "alone", copied_run.parent / "c")
    assert report.notices == (
        "no evaluation is logged up to this step, so the card has no results.",
    )
    assert (
        find_encoder(copied_run.parent / "c").model.config == find_encoder(checkpoint).model.config
    )


@pytest.mark.slow
def test_a_compiled_run_and_one_of_two_ranks_can_be_exported(
    built: BuiltDataset, tmp_path: Path
) -> None:
    if shutil.which("g++") is None:
        pytest.skip("torch.compile needs g++")
    flags = {"model": "tiny", "steps": 1, "precision": "fp32", "global-batch-size": 4}
    flags["eval-instances"] = 4
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    for name, more, ranks in (("compiled", ["--compile"], 1), ("two", [], 2)):
        arguments = [built().folder, "--out", tmp_path / name, *words, *more]
        done = run_module("clozemill.train.pretrain", *arguments, ranks=ranks)
        assert done.returncode == 0, done.stderr
        report = export_run(tmp_path / name, tmp_path / f"{name}-model")
        assert report.transformers_version == transformers.__version__
        _, found = loaded_by("BertForPreTraining", tmp_path / f"{name}-model")
        assert found == {}


def test_a_newer_checkpoint_that_is_damaged_is_skipped_and_named(copied_run: Path) -> None:
    (copied_run / "checkpoints" / "step-00000009" / MODEL_NAME).write_bytes(b"")
    report = export_run(copied_run, copied_run.parent / "model")
    assert report.step == 6
    (notice,) = report.notices
    assert re.match("skipped .*step-00000009: .* has 0 bytes, ", notice)


LOAD_ELSEWHERE = """
import json, sys
from transformers import AutoTokenizer
lines = json.load(sys.stdin)
found = {}
for folder in sys.argv[1:]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found[folder] = [tokenizer(lines)["input_ids"], tokenizer.model_max_length, len(tokenizer)]
json.dump(found, sys.stdout)
"""


@pytest.mark.slow
def test_casing_and_stripping_survive_an_export(run: Path, tmp_path: Path) -> None:
    """Case P19: in a fresh process without any code of ours."""
    accented = [
        "The CAF\u00c9 in Oslo",
        "\u00d6l\u00fc e\u0301clair",
        "\u304b\u304e",
        "\u0915\u0941",
    ]
    lines = [*accented, *make_texts(196, most_sentences=2)]
    letters = sorted({c for line in lines for text in (line, line.lower()) for c in text} - {" "})
    letters += sorted({c for c in unicodedata.normalize("NFD", "".join(letters))} - {*letters})
    pieces = [*SPECIALS, *letters, *(f"##{c}" for c in letters)]
    model, state = small_model(vocab_size=len(pieces)), small_state(3)
    expected = {}
    for is_lower, strips in itertools.product((True, False), (True, False)):
        normalizer = normalizers.BertNormalizer(lowercase=is_lower, strip_accents=strips)
        tokenizer = make_tokenizer(wordpiece_state(pieces, normalizer), name="test")
        folder = tmp_path / f"lower-{is_lower}-strips-{strips}"
        facts = CardFacts(name="x", config=model.config, state=state, evaluation=None, lines=None)
        folder.mkdir()
        write_export(folder, model, tokenizer, facts)
        encoder = make_encoder(tokenizer)
        ids = [encoder.encode([line]).token_ids.tolist() for line in lines]
        expected[str(folder)] = [
            [[tokenizer.cls_id, *line, tokenizer.sep_id] for line in ids],
            model.config.max_position_embeddings,
            tokenizer.vocab_size,
        ]
    assert len({json.dumps(found[0]) for found in expected.values()}) == 4
    done = subprocess.run(
        [sys.executable, "-c", LOAD_ELSEWHERE, *expected],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert json.loads(done.stdout) == expected


# The model card


def test_the_card_says_what_was_trained_on_what_and_how_well(
    built: BuiltDataset, run: Path, export: Path
) -> None:
    card = (export / "README.md").read_text(encoding="utf-8")
    front, _, body = card.removeprefix("---\n").partition("---\n")
    assert yaml.safe_load(front) == {
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["bert", "masked-language-modeling", "clozemill"],
    }
    assert body.startswith("\n# `small-run`\n")
    state = find_encoder(run).state
    assert state is not None
    for entry in built().manifest.splits.values():
        assert f"`{entry.dataset_digest}`" in body
        assert f"`{entry.instances_digest}`" in body
    assert f"| tokenizer hash | `{built().manifest.tokenizer.hash}` |" in body
    assert f"9 steps, {state.num_instances:,} instances, {state.num_tokens:,} tokens" in body
    assert "| recipe | - |" in body
    assert "| `learning_rate` | `0.005` |" in body
    assert "## Licence\n\nNot chosen yet" in body
    rows = read_metrics(run / "metrics.jsonl")
    last = [row for row in rows if isinstance(row, EvaluationRow)][-1]
    line = rows[0].context_free_loss  # type: ignore[union-attr]
    assert f"| loss of masked tokens (nats) | {last.mlm_loss:.3f} | {line:.3f} |" in body
    assert f"| right at next sentences | {last.nsp_accuracy:.1%} |" in body
    folders = [str(run.parent), str(built().folder)]
    texts = [path.read_text() for path in export.iterdir() if path.suffix in (".md", ".json")]
    assert not [f for f in folders for text in texts if f in text], "paths are nobody's business"


def test_the_code_in_the_card_runs(export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(export)
    (code,) = re.findall("```python\n(.*?)```", (export / "README.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code.replace("path/to/this/folder", "."), names)
    assert names["model"].config.vocab_size == len(names["tokenizer"])


def test_a_hostile_name_is_no_markdown_and_no_front_matter(run: Path, tmp_path: Path) -> None:
    name = "a`|<script>\n---\nlicense: mit\x1b[2J]("
    shutil.copytree(run, tmp_path / name)
    export_run(tmp_path / name, tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "\n# ``a`\\|<script> --- license: mit\\x1b[2J](``\n" in card
    assert card.count("\n---\n") == 1
    assert "\x1b" not in card


def test_weights_that_were_started_from_are_told_by_name_alone(
    built: BuiltDataset, export: Path, tmp_path: Path
) -> None:
    train_briefly(built().folder, tmp_path / "run", init_from=str(export))
    export_run(tmp_path / "run", tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert f"| `init_from` | `{export.name}` |" in card
    assert str(export.parent) not in card


# What is refused


def test_a_folder_that_holds_something_else_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds 'notes.txt' and is no export of ours"):
        export_run(run, tmp_path, overwrite=True)
    with pytest.raises(ConfigError, match=r"notes.txt is a file; choose another --out"):
        export_run(run, tmp_path / "notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_an_export_is_replaced_only_when_asked_and_only_if_unchanged(
    run: Path, copied: Path
) -> None:
    before = (copied / "model.safetensors").read_bytes()
    assert export_run(run, copied).step == 9, "the same again is no loss"
    other = run / "checkpoints" / "step-00000006"
    with pytest.raises(ConfigError, match="holds another export; use --overwrite to replace it"):
        export_run(other, copied)
    assert (copied / "model.safetensors").read_bytes() == before
    export_run(other, copied, overwrite=True)
    assert (copied / "model.safetensors").read_bytes() != before
    assert sorted(path.name for path in copied.iterdir()) == FILES
    assert [path.name for path in copied.parent.iterdir()] == ["copy"]
    # As somebody who trains it further and saves it here would leave it.
    for name, content in (("model.safetensors", before), ("LICENSE", b"mine")):
        shutil.copytree(copied, copied.parent / name)
        (copied.parent / name / name).write_bytes(content)
        with pytest.raises(ConfigError, match=f"{name} is not what an export wrote, and"):
            export_run(run, copied.parent / name, overwrite=True)
        assert (copied.parent / name / name).read_bytes() == content


def test_what_is_no_run_is_refused(export: Path, copied_run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is no run but a model already; copy the folder"):
        export_run(export, tmp_path / "out")
    with pytest.raises(RunError, match="neither a model, a checkpoint nor a run; check the path"):
        export_run(tmp_path / "nothing", tmp_path / "out")
    shutil.rmtree(copied_run / "checkpoints")
    with pytest.raises(RunError, match="has no checkpoint yet; train it first"):
        export_run(copied_run, tmp_path / "out")


def edit_state(checkpoint: Path, path: tuple[str, ...], value: Any) -> None:
    """Change an entry of a checkpoint's state."""
    state = json.loads((checkpoint / "state.json").read_text())
    table = state["state"]["facts"]
    for key in path[:-1]:
        table = table[key]
    table[path[-1]] = value
    (checkpoint / "state.json").write_text(json.dumps(state))


def test_a_tokenizer_that_is_gone_or_another_is_refused(
    built: BuiltDataset, copied_run: Path, tmp_path: Path
) -> None:
    gone = copied_run / "checkpoints" / "step-00000009"
    edit_state(gone, ("dataset", "path"), "gone/data")
    with pytest.raises(RunError, match=r"lies in the dataset 'gone/data', which is not there; .*"):
        export_run(copied_run, tmp_path / "out")
    own = built().tokenizer_dir
    assert export_run(copied_run, tmp_path / "out", tokenizer_dir=own).step == 9
    other = tmp_path / "other"
    shutil.copytree(own, other)
    pieces = (other / "vocab.txt").read_text().splitlines()
    (other / "tokenizer.json").unlink()
    (other / "vocab.txt").write_text("\n".join([*pieces[:-2], *pieces[:-3:-1]]) + "\n")
    found, expected = load_tokenizer(other).hash, load_tokenizer(own).hash
    with pytest.raises(TokenizerError, match=f"holds the tokenizer {found}, .* with {expected}"):
        export_run(copied_run, tmp_path / "second", tokenizer_dir=other)
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("model",), {"vocab_size": 9, "horns": 2}, "is not one that this clozemill knows"),
        (("model", "vocab_size"), 10**9, "other tensors than the model that its state describes"),
        (("model", "num_hidden_layers"), 10**9, "other tensors than the model"),
    ],
)
def test_a_checkpoint_that_lies_about_its_model_is_refused_at_once(
    copied_run: Path, path: tuple[str, ...], value: Any, message: str
) -> None:
    checkpoint = copied_run / "checkpoints" / "step-00000009"
    edit_state(checkpoint, path, value)
    with pytest.raises(RunError, match=message):
        find_encoder(checkpoint)


def test_weights_that_are_not_finite_are_refused_and_nothing_is_left(
    run: Path, tmp_path: Path
) -> None:
    encoder, tokenizer = find_encoder(run), load_tokenizer(run.parent / "model")
    with torch.no_grad():
        encoder.model.cls.predictions.bias[3] = torch.nan
    with pytest.raises(RunError, match=r"cls.predictions.bias is not finite in this checkpoint"):
        check_reloads(tmp_path, encoder.model, tokenizer)


def damage(folder: Path, **changes: torch.Tensor | None) -> None:
    """Change or remove tensors of an export; a name's last part is enough."""
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    for ending, tensor in changes.items():
        (name,) = [n for n in tensors if n.endswith(ending.replace("_", "."))]
        del tensors[name]
        if tensor is not None:
            tensors[name] = tensor
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def test_an_export_that_reads_back_changed_is_refused(
    run: Path, export: Path, copied: Path
) -> None:
    """What could only happen by a fault of ours, or of a disk."""
    encoder, tokenizer = find_encoder(run), load_tokenizer(export)
    model = encoder.model.eval()
    damage(copied, predictions_bias=torch.ones(model.config.vocab_size))
    with pytest.raises(RunError, match="other values than were written: its weights or sizes"):
        check_reloads(copied, model, tokenizer)
    with pytest.raises(RunError, match=r"written: logits of transformers \(.* of their scale\)"):
        check_like_transformers(copied, model, tokenizer)
    damage(copied, pooler_dense_bias=None)
    with pytest.raises(RunError, match=r"missing keys in the export: bert.pooler.dense.bias"):
        check_like_transformers(copied, model, tokenizer)


def test_an_export_with_another_tokenizer_is_refused(run: Path, export: Path, copied: Path) -> None:
    encoder, tokenizer = find_encoder(run), load_tokenizer(export)
    settings = json.loads((copied / "tokenizer_config.json").read_text())
    settings["do_lower_case"] = False
    (copied / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(RunError, match="other values than were written: its tokenizer"):
        check_reloads(copied, encoder.model.eval(), tokenizer)
    with pytest.raises(RunError, match="other values than were written: token ids of transformer"):
        check_like_transformers(copied, encoder.model.eval(), tokenizer)


def test_another_gelu_is_noticed(run: Path, export: Path, copied: Path) -> None:
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "hidden_act": "gelu_new"}))
    with pytest.raises(RunError, match="logits of transformers"):
        check_like_transformers(copied, find_encoder(run).model.eval(), load_tokenizer(export))


def test_without_transformers_the_export_says_that_it_was_not_checked_with_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)  # as if it were not installed
    report = export_run(run, tmp_path / "model")
    assert report.transformers_version is None
    (notice,) = report.notices
    assert notice.startswith("transformers is not installed, so only clozemill has read")

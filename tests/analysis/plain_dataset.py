"""Every row of a small dataset as Python objects, and what the views should make of them."""

from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from clozemill.pipeline.dataset import Dataset

Row = tuple[Any, ...]


class PlainDataset:
    """The rows of each view, recounted."""

    def __init__(self, dataset: Dataset) -> None:
        self.instances = [
            {**row, "split": split, "instance": number}
            for split in dataset.splits
            for number, row in enumerate(
                row for batch in dataset.batches(split) for row in batch.to_pylist()
            )
        ]
        self.documents = [row for batch in dataset.documents() for row in batch.to_pylist()]
        vocab = dataset.tokenizer_dir / "vocab.txt"
        self.pieces = vocab.read_text().splitlines()
        assert len(self.instances) > 300
        assert len(self.documents) == 60

    def is_special(self, token_id: int) -> bool:
        return self.pieces[token_id] in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")

    def word_lengths(self, input_ids: list[int]) -> list[int]:
        words: list[list[int]] = []
        for token_id in input_ids:
            continues = self.pieces[token_id].startswith("##") and not self.is_special(words[-1][0])
            if continues:
                words[-1].append(token_id)
            else:
                words.append([token_id])
        return [0 if self.is_special(word[0]) else len(word) for word in words for _ in word]

    def instance_rows(self) -> list[Row]:
        return [
            (
                row["split"],
                row["instance"],
                row["instance_id"].hex(),
                row["source"],
                row["next_sentence_label"],
                row["num_chunk_sentences"],
                len(row["input_ids"]),
                sum(not self.is_special(token_id) for token_id in row["input_ids"]),
                row["segment_b_start"],
                len(row["masks"]),
                row["input_ids"],
            )
            for row in self.instances
        ]

    def span_rows(self) -> list[Row]:
        return [
            (
                row["split"],
                row["instance"],
                number,
                span["document_id"].hex(),
                span["first_sentence"],
                span["num_sentences"],
                span["cut_front"],
                span["cut_back"],
            )
            for row in self.instances
            for number, span in enumerate(row["spans"])
        ]

    def pair_rows(self) -> list[Row]:
        return [self.pair_of(row) for row in self.instances]

    def pair_of(self, row: dict[str, Any]) -> Row:
        ids, border, (a, b) = row["input_ids"], row["segment_b_start"], row["spans"]
        a_ids, b_ids = ids[1 : border - 1], ids[border:-1]
        return (
            row["split"],
            row["instance"],
            row["instance_id"].hex(),
            row["source"],
            row["next_sentence_label"],
            row["num_chunk_sentences"],
            2,
            *(a["document_id"].hex(), a["first_sentence"], a["num_sentences"]),
            *(a["cut_front"] + a["cut_back"], len(a_ids), a_ids),
            *(b["document_id"].hex(), b["first_sentence"], b["num_sentences"]),
            *(b["cut_front"] + b["cut_back"], len(b_ids), b_ids),
        )

    def token_rows(self) -> list[Row]:
        found = []
        for row in self.instances:
            ids = row["input_ids"]
            num_maskable = sum(not self.is_special(token_id) for token_id in ids)
            rates = [len(overlay) / num_maskable for overlay in row["masks"]]
            selected = (sum(rates), sum(rate * (1 - rate) for rate in rates))
            billionth = Decimal("1e-9")
            decimals = [Decimal(n).quantize(billionth, ROUND_HALF_UP) for n in selected]
            of_all = (row["segment_b_start"], len(ids), len(rates), *decimals)
            for position, length in enumerate(self.word_lengths(ids)):
                key = (row["split"], row["instance"], row["source"], position)
                found.append((*key, ids[position], length, *of_all))
        return found

    def variant_rows(self) -> list[Row]:
        return [
            (
                row["split"],
                row["instance"],
                row["source"],
                variant,
                len(row["input_ids"]),
                sum(not self.is_special(token_id) for token_id in row["input_ids"]),
                row["segment_b_start"],
                len(row["masks"]),
                row["input_ids"],
                self.word_lengths(row["input_ids"]),
                len(overlay),
                *[max(1, round(0.15 * len(row["input_ids"])))] * 2,
                overlay,
                [selected["position"] for selected in overlay],
            )
            for row in self.instances
            for variant, overlay in enumerate(row["masks"])
        ]

    def mask_rows(self) -> list[Row]:
        return [
            (row["split"], row["instance"], row["source"], variant, *self.mask_of(row, selected))
            for row in self.instances
            for variant, overlay in enumerate(row["masks"])
            for selected in overlay
        ]

    def mask_of(self, row: dict[str, Any], selected: dict[str, int]) -> Row:
        position, shown = selected["position"], selected["token_id"]
        original = row["input_ids"][position]
        is_mask = self.pieces[shown] == "[MASK]"
        return (
            position,
            original,
            self.pieces[original],
            shown,
            self.pieces[shown],
            "mask" if is_mask else "keep" if shown == original else "random",
            self.word_lengths(row["input_ids"])[position],
            "A" if position < row["segment_b_start"] else "B",
            (position + 0.5) / len(row["input_ids"]),
        )

    def document_rows(self) -> list[Row]:
        return [(row["document_id"].hex(), *list(row.values())[1:]) for row in self.documents]

    def vocab_rows(self) -> list[Row]:
        return [
            (
                token_id,
                piece,
                self.is_special(token_id),
                piece == "[UNK]",
                token_id >= 5,
                piece.startswith("##"),
            )
            for token_id, piece in enumerate(self.pieces)
        ]

    def rows_of(self, view: str) -> list[Row]:
        made: list[Row] = getattr(self, f"{view.removesuffix('s')}_rows")()
        return made

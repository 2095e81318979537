import numpy as np
import pyarrow as pa
import pytest
from tests.pipeline.small_datasets import (
    SOURCES,
    make_batches,
    make_columns,
    schema_for,
    slice_columns,
)

from clozemill.pipeline.columns import read_columns
from clozemill.pipeline.errors import DatasetError
from clozemill.pipeline.instances import token_dtype
from clozemill.pipeline.schema import (
    document_schema,
    instance_batch,
    instance_schema,
    rows_per_batch,
)


def test_columns_come_back_as_they_went_in():
    columns = make_columns(50)
    (batch,) = make_batches(columns, rows=64)
    batch.validate(full=True)
    back = read_columns(batch)
    assert (back.instance_ids == columns.instance_ids).all()
    for name in columns.tokens._fields:
        assert (getattr(back.tokens, name) == getattr(columns.tokens, name)).all()
    for name in columns.masks._fields:
        assert (getattr(back.masks, name) == getattr(columns.masks, name)).all()
    for name in columns.spans._fields:
        assert (getattr(back.spans, name) == getattr(columns.spans, name)).all()
    assert (back.next_sentence_label == columns.next_sentence_label).all()
    assert (back.num_chunk_sentences == columns.num_chunk_sentences).all()
    assert (back.sources == columns.sources).all()
    assert back.num_variants == 3


def test_rows_read_as_python_values():
    columns = make_columns(3, num_variants=2)
    (batch,) = make_batches(columns)
    row = batch.to_pylist()[1]
    begin, end = columns.tokens.starts[1:3]
    assert row["input_ids"] == columns.tokens.input_ids[begin:end].tolist()
    assert row["source"] == SOURCES[int(columns.sources[1])].as_py()
    assert len(row["masks"]) == 2
    first, last = columns.masks.starts[2:4]
    positions = [shown["position"] for shown in row["masks"][0]]
    assert positions == columns.masks.positions[first:last].tolist()
    assert len(row["spans"]) == 2
    assert row["spans"][0]["document_id"] == columns.spans.document_ids[2].tobytes()


def test_slices_of_columns_and_of_batches_are_the_same_rows():
    columns = make_columns(40)
    (whole,) = make_batches(columns, rows=64)
    part = instance_batch(slice_columns(columns, 7, 29), schema_for(), SOURCES)
    assert part.equals(whole.slice(7, 22))
    again = instance_batch(read_columns(whole.slice(7, 22)), schema_for(), SOURCES)
    assert again.equals(part)


def test_null_labels_hold_zero_bytes():
    columns = make_columns(9)
    label = columns.next_sentence_label.copy()
    label[::2] = -1
    (batch,) = make_batches(columns._replace(next_sentence_label=label))
    column = batch.column("next_sentence_label")
    assert column.null_count == 5
    assert (np.frombuffer(column.buffers()[1], np.int8)[:9][::2] == 0).all()
    assert (read_columns(batch).next_sentence_label == label).all()


def test_no_variants_are_empty_lists():
    (batch,) = make_batches(make_columns(5, num_variants=0))
    batch.validate(full=True)
    assert batch.column("masks").to_pylist() == [[]] * 5
    back = read_columns(batch)
    assert back.masks is None
    assert back.num_variants == 0


def test_only_the_label_has_nulls():
    nullable = [field.name for field in schema_for() if field.nullable]
    assert nullable == ["next_sentence_label"]


@pytest.mark.parametrize(
    ("length", "position"), [(128, pa.uint8()), (256, pa.uint8()), (257, pa.uint16())]
)
def test_positions_take_one_byte_up_to_256(length: int, position: pa.DataType):
    schema = instance_schema(token_dtype=np.dtype(np.uint16), max_seq_length=length)
    assert schema.field("masks").type.value_type.value_type.field("position").type == position


def test_number_of_sources_decides_the_width_of_the_index():
    def index_type(num_sources: int) -> pa.DataType:
        schema = instance_schema(
            token_dtype=token_dtype(10), max_seq_length=8, num_sources=num_sources
        )
        return schema.field("source").type.index_type

    assert index_type(128) == pa.int8()
    assert index_type(129) == pa.int16()
    assert index_type(40_000) == pa.int32()


def test_value_too_large_for_its_column_is_an_error():
    columns = make_columns(4)
    wide = columns.spans._replace(cut_back=np.full(8, 70_000))
    schema = instance_schema(
        token_dtype=np.dtype(np.uint16), max_seq_length=128, num_sources=3, most_span_value=65_535
    )
    with pytest.raises(DatasetError, match=r"spans\.cut_back holds 70000, .* fit uint16"):
        instance_batch(columns._replace(spans=wide), schema, SOURCES)


def test_batches_with_different_numbers_of_variants_are_refused():
    two, three = (make_columns(1, num_variants=n) for n in (2, 3))
    table = pa.Table.from_batches([*make_batches(two), *make_batches(three)]).combine_chunks()
    with pytest.raises(DatasetError, match="2 mask variants for some instances and 3 for others"):
        read_columns(table.to_batches()[0])


@pytest.mark.parametrize(("length", "variants"), [(128, 10), (512, 10), (65_535, 10_000)])
def test_list_offsets_of_a_batch_stay_below_two_to_the_31(length: int, variants: int):
    # Every token selected in every variant is the most a batch can hold.
    assert rows_per_batch(length, variants) * length * variants < 2**31


def test_documents_have_one_nullable_column():
    assert [field.name for field in document_schema() if field.nullable] == ["external_id"]

-- The views over a dataset. docs/sql.md describes every column.
--
-- They read three relations that the session has: `instance_rows`, `document_rows` (the files, as
-- Arrow streams) and `vocab`. Instances are numbered in their split, from 0, in the order of the
-- manifest; (split, instance) is their key. Files hold unsigned numbers as short as they can be,
-- whose sums and differences would overflow: the columns here are signed.

-- grain: one row per instance
create temp view instances as
select
    split,
    instance,
    lower(hex(instance_id)) as instance_id,
    source,
    next_sentence_label,
    num_chunk_sentences::integer as num_chunk_sentences,
    len(input_ids) as num_tokens,
    num_maskable,
    segment_b_start::integer as segment_b_start,
    len(masks) as num_variants,
    input_ids
from instance_rows;

-- grain: one row per instance and span of a document in it, in order
create temp view spans as
select
    split,
    instance,
    span_number - 1 as span,
    lower(hex(span_row.document_id)) as document_id,
    span_row.first_sentence::bigint as first_sentence,
    span_row.num_sentences::bigint as num_sentences,
    span_row.cut_front::bigint as cut_front,
    span_row.cut_back::bigint as cut_back
from (
    select
        split,
        instance,
        unnest(spans) as span_row,
        unnest(range(1, len(spans) + 1)) as span_number
    from instance_rows
);

-- grain: one row per distinct document of the input
create temp view documents as
select
    lower(hex(document_id)) as document_id,
    split,
    source,
    external_id,
    num_characters,
    num_sentences,
    num_tokens,
    num_unknown,
    targets,
    num_passes,
    num_duplicates,
    expected_random,
    expected_next,
    fate
from document_rows;

-- grain: one row per instance and stored variant
create temp view variants as
select
    split,
    instance,
    source,
    variant_number - 1 as variant,
    num_tokens,
    num_maskable,
    len(overlay) as num_selected,
    overlay
from (
    select
        split,
        instance,
        source,
        len(input_ids) as num_tokens,
        num_maskable,
        unnest(masks) as overlay,
        unnest(range(1, len(masks) + 1)) as variant_number
    from instance_rows
);

-- grain: one row per instance, stored variant and selected position
create temp view masks as
select
    split,
    instance,
    source,
    variant,
    position,
    original_id,
    getvariable('pieces')[original_id + 1] as original_piece,
    shown_id,
    getvariable('pieces')[shown_id + 1] as shown_piece,
    case
        when shown_id = getvariable('mask_id') then 'mask'
        when shown_id = original_id then 'keep'
        else 'random'
    end as action,
    word_lengths[position + 1]::integer as word_length,
    case when position < segment_b_start then 'A' else 'B' end as segment,
    (position + 0.5) / len(input_ids) as relative_position
from (
    select
        split,
        instance,
        source,
        variant_number - 1 as variant,
        selected.position::integer as position,
        input_ids[selected.position::integer + 1]::integer as original_id,
        selected.token_id::integer as shown_id,
        input_ids,
        word_lengths,
        segment_b_start
    from (
        select
            split,
            instance,
            source,
            variant_number,
            unnest(overlay) as selected,
            input_ids,
            word_lengths,
            segment_b_start
        from (
            select
                split,
                instance,
                source,
                unnest(masks) as overlay,
                unnest(range(1, len(masks) + 1)) as variant_number,
                input_ids,
                word_lengths,
                segment_b_start
            from instance_rows
        )
    )
);

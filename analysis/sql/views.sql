-- The views over a dataset. docs/sql.md describes every column.
--
-- They read three relations that the session has: `instance_rows`, `document_rows` (the files, as
-- Arrow streams) and `vocab`. Instances are numbered in their split, from 0, in the order of the
-- manifest; (split, instance) is their key. Files hold unsigned numbers as short as they can be,
-- whose sums and differences would overflow: single numbers are signed here, those in lists not.

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

-- grain: one row per instance; of a recipe without pairs, what its first two spans are
create temp view pairs as
select
    split,
    instance,
    lower(hex(instance_id)) as instance_id,
    source,
    next_sentence_label,
    num_chunk_sentences::integer as num_chunk_sentences,
    len(spans) as num_spans,
    lower(hex(spans[1].document_id)) as a_document_id,
    spans[1].first_sentence::bigint as a_first_sentence,
    spans[1].num_sentences::bigint as a_num_sentences,
    spans[1].cut_front::bigint + spans[1].cut_back as a_cut,
    segment_b_start::bigint - 2 as a_num_tokens,
    input_ids[2:segment_b_start::bigint - 1] as a_ids,
    lower(hex(spans[2].document_id)) as b_document_id,
    spans[2].first_sentence::bigint as b_first_sentence,
    spans[2].num_sentences::bigint as b_num_sentences,
    spans[2].cut_front::bigint + spans[2].cut_back as b_cut,
    len(input_ids) - segment_b_start::bigint - 1 as b_num_tokens,
    input_ids[segment_b_start::bigint + 1:len(input_ids) - 1] as b_ids
from instance_rows;

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

-- grain: one row per instance and position, special tokens too
-- `expected_selected` and `variance_selected` are those of how many of the stored variants select
-- the position, if each has its number of positions and no regard to which: for token masks. They
-- are decimals, so that their sums are the same whatever is added first.
create temp view tokens as
select
    split,
    instance,
    source,
    unnest(range(len(input_ids))) as position,
    unnest(input_ids)::integer as token_id,
    unnest(word_lengths)::integer as word_length,
    segment_b_start::integer as segment_b_start,
    len(input_ids) as num_tokens,
    len(overlay_rates) as num_variants,
    expected_selected,
    variance_selected
from (
    select
        split,
        instance,
        source,
        input_ids,
        word_lengths,
        segment_b_start,
        list_transform(
            masks, lambda overlay: len(overlay) / nullif(num_maskable, 0)
        ) as overlay_rates,
        list_sum(overlay_rates)::decimal(18, 9) as expected_selected,
        list_sum(list_transform(overlay_rates, lambda p: p * (1 - p)))::decimal(18, 9)
            as variance_selected
    from instance_rows
);

-- grain: one row per instance and stored variant
-- `fewest_asked` and `most_asked` are what the settings ask for before any cap: with `mask_count`
-- stochastic the number is rounded at random, either way.
create temp view variants as
select
    split,
    instance,
    source,
    variant_number - 1 as variant,
    len(input_ids) as num_tokens,
    num_maskable,
    segment_b_start::integer as segment_b_start,
    num_variants,
    input_ids,
    word_lengths,
    len(overlay) as num_selected,
    case getvariable('mask_count')
        when 'stochastic' then floor(getvariable('masked_lm_prob') * num_maskable)
        else greatest(1, round_even(getvariable('masked_lm_prob') * len(input_ids), 0))
    end::bigint as fewest_asked,
    case getvariable('mask_count')
        when 'stochastic' then ceil(getvariable('masked_lm_prob') * num_maskable)
        else fewest_asked
    end::bigint as most_asked,
    overlay,
    list_transform(overlay, lambda shown: shown['position']::integer) as positions
from (
    select
        split,
        instance,
        source,
        num_maskable,
        segment_b_start,
        input_ids,
        word_lengths,
        len(masks) as num_variants,
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
        variant,
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
            variant,
            unnest(overlay) as selected,
            input_ids,
            word_lengths,
            segment_b_start
        from variants
    )
);

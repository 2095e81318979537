-- question: Is every kept document in the packed rows, once per pass?
-- grain: one row per document of which something is missing or there too often
-- passes: there is none
-- failure: rows that were lost, filtered or copied after they were made.
-- kind: offences
-- needs: whole, not pairs
-- Where long sentences are split no token is lost. Truncated ones lose tokens, but no sentence.
-- Dropped ones lose both, and how many of each is counted for the whole split alone: ledger_packed.
-- The tokens of a span end before its [SEP].
with borders as (
    select
        split,
        instance,
        spans,
        list_where(
            range(len(input_ids)),
            list_transform(input_ids, lambda token: token = getvariable('sep_id'))
        ) as separators
    from instance_rows
),

pieces as (
    select
        unnest(list_transform(spans, lambda span: span['document_id'])) as document_id,
        unnest(list_transform(spans, lambda span: span['num_sentences'])) as num_sentences,
        unnest(separators) as separator,
        unnest(list_concat([0], separators[:-2])) as before
    from borders
),

used as (
    select
        lower(hex(document_id)) as document_id,
        sum(num_sentences) as num_sentences,
        sum(separator - before - 1) as num_tokens
    from pieces
    group by all
),

totals as (
    select
        documents.document_id,
        documents.split,
        documents.source,
        documents.num_passes,
        documents.num_sentences * documents.num_passes as expected_sentences,
        coalesce(used.num_sentences, 0)::bigint as used_sentences,
        documents.num_tokens * documents.num_passes as expected_tokens,
        coalesce(used.num_tokens, 0)::bigint as used_tokens
    from documents
    left join used using (document_id)
    where documents.fate = 'kept'
),

final as (
    select
        document_id,
        split,
        source,
        num_passes,
        expected_sentences,
        used_sentences,
        expected_tokens,
        used_tokens
    from totals
    where
        used_tokens > expected_tokens
        or (getvariable('long_sentences') = 'split' and used_tokens < expected_tokens)
        or (getvariable('long_sentences') = 'truncate' and used_sentences < expected_sentences)
        or (getvariable('long_sentences') <> 'split' and used_sentences > expected_sentences)
)

select
    document_id,
    split,
    source,
    num_passes,
    expected_sentences,
    used_sentences,
    expected_tokens,
    used_tokens
from final
order by document_id;

-- question: Is every sentence and token of a kept document in its pairs, once per pass?
-- grain: one row per document of which something is missing or there too often
-- passes: there is none
-- failure: rows that were lost, filtered or copied after they were made.
-- kind: offences
-- needs: whole, pairs
-- Its own are those of A and of a next B, cut tokens among them. A random B is another's.
with own as (
    select
        a_document_id as document_id,
        a_num_sentences as num_sentences,
        a_num_tokens + a_cut as num_tokens
    from pairs
    union all
    select
        b_document_id as document_id,
        b_num_sentences as num_sentences,
        b_num_tokens + b_cut as num_tokens
    from pairs
    where next_sentence_label = 0
),

used as (
    select
        document_id,
        sum(num_sentences) as num_sentences,
        sum(num_tokens) as num_tokens
    from own
    group by document_id
),

final as (
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
where used_sentences <> expected_sentences or used_tokens <> expected_tokens
order by document_id;

-- question: What share of every source's tokens is [UNK]?
-- grain: one row per split and source, of the documents that make instances
-- passes: no verdict
-- kind: figures
with final as (
    select
        split,
        source,
        sum(num_tokens)::bigint as num_tokens,
        sum(num_unknown)::bigint as num_unknown,
        count(*) filter (where num_unknown > 0) as num_documents_with_unknown
    from documents
    where fate = 'kept'
    group by split, source
)

select
    split,
    source,
    num_tokens,
    num_unknown,
    num_documents_with_unknown,
    round(num_unknown / num_tokens, 6) as unknown_share
from final
order by split, source;

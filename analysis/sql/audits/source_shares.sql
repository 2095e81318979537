-- question: What share of documents and tokens has every source, before and after sampling?
-- grain: one row per split and source
-- passes: no verdict
-- kind: figures
-- needs: whole
-- Before: documents that have the sentences asked for. After: their tokens once per pass. A row
-- counts for the source of its first document.
with before as (
    select
        documents.split,
        documents.source,
        count(*) as num_documents,
        sum(documents.num_tokens) as num_tokens,
        sum(documents.num_tokens * documents.num_passes) as num_drawn_tokens,
        avg(documents.num_passes) as mean_passes,
        getvariable('dupe_factor') * any_value(sources.weight) as expected_passes
    from documents
    inner join sources using (source)
    where documents.fate in ('kept', 'unsampled')
    group by documents.split, documents.source
),

rows_of as (
    select
        split,
        source,
        count(*) as num_instances
    from instances
    group by split, source
),

final as (
    select
        before.split,
        before.source,
        before.num_documents,
        before.mean_passes,
        before.expected_passes,
        coalesce(rows_of.num_instances, 0) as num_instances,
        before.num_tokens / nullif(sum(before.num_tokens) over by_split, 0) as token_share_before,
        before.num_drawn_tokens
        / nullif(sum(before.num_drawn_tokens) over by_split, 0) as token_share_after
    from before
    left join rows_of using (split, source)
    window by_split as (partition by before.split)
)

select
    split,
    source,
    num_documents,
    round(mean_passes, 6) as mean_passes,
    expected_passes,
    num_instances,
    round(token_share_before, 6) as token_share_before,
    round(token_share_after, 6) as token_share_after
from final
order by split, source;

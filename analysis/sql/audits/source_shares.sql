-- question: What share of the tokens has every source, before and after sampling?
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
        before.mean_passes,
        before.expected_passes,
        coalesce(rows_of.num_instances, 0) as num_instances,
        before.num_tokens / nullif(sum(before.num_tokens) over by_split, 0) as share_before,
        before.num_drawn_tokens
        / nullif(sum(before.num_drawn_tokens) over by_split, 0) as share_after
    from before
    left join rows_of using (split, source)
    window by_split as (partition by before.split)
)

select
    split,
    source,
    round(mean_passes, 6) as mean_passes,
    expected_passes,
    num_instances,
    round(share_before, 6) as share_before,
    round(share_after, 6) as share_after
from final
order by split, source;

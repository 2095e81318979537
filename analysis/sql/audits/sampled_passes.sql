-- question: Is the fraction of a source's weight drawn as a chance?
-- grain: one row per source whose documents are drawn a fractional number of times
-- passes: the further pass is drawn as often as of independent documents of that probability
-- failure: fractions that are rounded and not drawn, or one draw for a whole source.
-- kind: shares
with asked as (
    select
        documents.source,
        documents.num_passes,
        getvariable('dupe_factor') * sources.weight as expected_passes
    from documents
    inner join sources using (source)
    where documents.fate in ('kept', 'unsampled')
),

final as (
    select
        source,
        count(*) filter (where num_passes > expected_passes) as observed,
        count(*) as trials,
        any_value(expected_passes - floor(expected_passes)) as probability
    from asked
    where expected_passes > floor(expected_passes)
    group by source
)

select
    source,
    observed,
    trials,
    probability
from final
order by source;

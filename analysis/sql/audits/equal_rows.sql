-- question: How many rows hold the same tokens as another row, of their split or of the other?
-- grain: one row per split
-- passes: no verdict
-- kind: figures
-- needs: whole
-- Two documents may hold the same sentences, and two passes may draw the same pair: equal tokens
-- are no fault by themselves, and a row drawn twice is one for distinct_instances. Rows are
-- compared by a 64-bit hash: that two of ten million differ but seem equal has a probability of
-- 3e-6.
with texts as (
    select
        hash(input_ids) as text,
        split,
        count(*) as num_rows
    from instances
    group by text, split
),

sides as (
    select
        split,
        num_rows,
        count(*) over (partition by text) > 1 as is_in_other_split
    from texts
),

final as (
    select
        split,
        sum(num_rows)::bigint as num_instances,
        (sum(num_rows) - count(*))::bigint as num_repeats,
        coalesce(sum(num_rows) filter (where is_in_other_split), 0)::bigint as num_in_other_split
    from sides
    group by split
)

select
    split,
    num_instances,
    num_repeats,
    num_in_other_split,
    round(num_repeats / num_instances, 6) as repeated_share
from final
order by split;

-- question: Do the packed rows and their tokens add up to the ledger?
-- grain: one row per split and count of the ledger that the rows do not give
-- passes: there is none
-- failure: rows that were lost or added after they were counted.
-- kind: offences
-- needs: whole, not pairs
-- What is in no row was truncated or dropped with a long sentence: both together are compared.
with counts as (
    select
        split,
        count(*) as num_instances,
        sum(len(input_ids) - 1 - len(spans)) as num_tokens
    from instance_rows
    group by split
),

own as (
    select
        split,
        sum(num_tokens * num_passes) as num_own_tokens
    from documents
    group by split
),

recounted as (
    select
        own.split,
        unnest(['instances', 'in_instances', 'lost']) as what,
        unnest([
            coalesce(counts.num_instances, 0),
            coalesce(counts.num_tokens, 0),
            own.num_own_tokens - coalesce(counts.num_tokens, 0)
        ]) as recount
    from own
    left join counts using (split)
),

stated as (
    select
        split,
        case reason
            when 'all' then 'instances'
            when 'in_instances' then 'in_instances'
            else 'lost'
        end as what,
        sum(count) as stated
    from ledger
    where
        (section = 'instances' and reason = 'all')
        or (section = 'pass_tokens' and reason in ('in_instances', 'truncated', 'dropped'))
    group by split, what
),

final as (
    select
        recounted.split,
        recounted.what,
        coalesce(stated.stated, 0)::bigint as stated,
        recounted.recount::bigint as recounted
    from recounted
    left join stated using (split, what)
)

select
    split,
    what,
    stated,
    recounted
from final
where stated <> recounted
order by split, what;

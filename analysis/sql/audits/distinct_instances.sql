-- question: Is every instance there once, over all shards and splits?
-- grain: one row per instance id that is there more often
-- passes: there is none
-- failure: a shard that was copied, or rows of two builds.
-- kind: offences
-- An id is a hash of pass and spans, so the same sentences drawn in two passes have two.
with final as (
    select
        lower(hex(instance_id)) as instance_id,
        count(*) as num_rows,
        min(split) as first_split,
        min(instance) as first_instance
    from instance_rows
    group by instance_id
    having count(*) > 1
)

select
    instance_id,
    num_rows,
    first_split,
    first_instance
from final
order by instance_id;

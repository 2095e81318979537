-- question: Does every instance have as many variants as its split is said to have?
-- grain: one row per split and number of variants that is wrong
-- passes: there is none
-- failure: rows of another build, or masks that were lost.
-- kind: offences
with final as (
    select
        instances.split,
        instances.num_variants,
        splits.num_variants as num_stated,
        count(*) as num_instances,
        min(instances.instance) as first_instance
    from instances
    inner join splits on instances.split = splits.split
    where instances.num_variants is distinct from splits.num_variants
    group by all
)

select
    split,
    num_variants,
    num_stated,
    num_instances,
    first_instance
from final
order by split, num_variants;

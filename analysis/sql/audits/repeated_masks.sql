-- question: Do different instances have the same mask more often than by chance?
-- grain: one row per split, number of maskable positions and number of selected ones
-- passes: no more masks are repeated than by chance
-- failure: one seed for every shard, worker or row.
-- kind: excess
-- needs: variants, not words
-- A mask here is what one variant of an instance selects, counted among the maskable positions;
-- which variant follows from a hash of the instance's number, so that all of them are looked at.
-- Of C(m, n) masks each is as likely, so that of the j-th instance is that of an earlier one with
-- probability at most (j - 1) / C(m, n), whatever came before. So N instances have no more repeats
-- than independent coins of these probabilities, with the mean N (N - 1) / 2 / C(m, n). One seed
-- for every row or shard repeats masks throughout.
with chosen as (
    select
        split,
        num_maskable as m,
        list_transform(
            positions, lambda position: position - (position >= segment_b_start)::integer
        ) as places
    from variants
    where variant = hash(instance) % num_variants
),

distinct_masks as (
    select
        split,
        m,
        places,
        count(*) as num_instances
    from chosen
    group by all
),

counts as (
    select
        split,
        m,
        len(places) as n,
        sum(num_instances) as num_instances,
        sum(num_instances - 1) as observed
    from distinct_masks
    group by all
),

final as (
    select
        split,
        m as num_maskable,
        n as num_selected,
        observed,
        num_instances as trials,
        least(
            num_instances,
            num_instances * (num_instances - 1) / 2
            * exp(lgamma(n + 1) + lgamma(m - n + 1) - lgamma(m + 1))
        ) as expected,
        expected as variance
    from counts
    where num_instances > 1
)

select
    split,
    num_maskable,
    num_selected,
    observed,
    trials,
    expected,
    variance
from final
order by split, num_maskable, num_selected;

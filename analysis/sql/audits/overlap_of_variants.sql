-- question: Do consecutive variants of an instance overlap as independent draws do?
-- grain: one row per split
-- passes: they share as many positions as they should
-- failure: variants that share random numbers, or some positions that are likelier than others.
-- kind: sums
-- needs: variants, not words
-- Exact mean and variance: of m maskable positions variant v selects n and variant v + 1 selects k,
-- so they share a hypergeometric count of mean n k / m and variance
-- n (k / m) (1 - k / m) (m - n) / (m - 1). Whichever positions v selects, the law is the same; so
-- the counts along the chain 0, 1, 2, ... are independent.
with positions as (
    select
        split,
        num_maskable as m,
        list_transform(
            masks, lambda overlay: list_transform(overlay, lambda shown: shown['position'])
        ) as chosen
    from instance_rows
),

neighbours as (
    select
        split,
        m,
        chosen,
        unnest(range(1, len(chosen))) as i
    from positions
),

counts as (
    select
        split,
        m,
        len(chosen[i]) as n,
        len(chosen[i + 1]) as k,
        count(*) as num_pairs,
        sum(len(list_intersect(chosen[i], chosen[i + 1]))) as observed
    from neighbours
    group by all
),

final as (
    select
        split,
        sum(observed) as observed,
        sum(num_pairs * least(n, k)) as trials,
        sum(num_pairs * n * k / m) as expected,
        sum(
            num_pairs * n * (k / m) * (1 - k / m) * (m - n) / greatest(m - 1, 1)
        ) as variance
    from counts
    group by split
)

select
    split,
    observed,
    trials,
    expected,
    variance
from final
order by split;

-- question: Are consecutive variants of an instance equal more or less often than by chance?
-- grain: one row per split
-- passes: they are as often as independent draws
-- failure: the same seed for every variant; if there are too few, variants that were made to
--   differ.
-- kind: sums
-- needs: variants, not words
-- Exact: of m maskable positions n are selected, each of the C(m, n) choices alike. So a variant
-- that selects as many positions as the one before it selects the same with probability
-- 1 / C(m, n), whichever those were: independent coins.
with neighbours as (
    select
        split,
        num_maskable as m,
        masks,
        unnest(range(1, len(masks))) as i
    from instance_rows
),

counts as (
    select
        split,
        m,
        len(masks[i]) as n,
        count(*) as num_pairs,
        count(*) filter (
            where list_transform(masks[i], lambda shown: shown['position'])
            = list_transform(masks[i + 1], lambda shown: shown['position'])
        ) as observed
    from neighbours
    where len(masks[i]) = len(masks[i + 1])
    group by all
),

chances as (
    select
        split,
        observed,
        num_pairs,
        exp(lgamma(n + 1) + lgamma(m - n + 1) - lgamma(m + 1)) as probability
    from counts
),

final as (
    select
        split,
        sum(observed) as observed,
        sum(num_pairs) as trials,
        sum(num_pairs * probability) as expected,
        sum(num_pairs * probability * (1 - probability)) as variance
    from chances
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

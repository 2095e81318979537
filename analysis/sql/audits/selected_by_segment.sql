-- question: Are A and B masked alike?
-- grain: one row per split
-- passes: as many tokens of A are selected as of any others
-- failure: segments masked apart, or masks drawn before B was put in place.
-- kind: sums
-- needs: variants, pairs, not words
-- Exact mean and variance: of an instance with m maskable tokens, s of them in A, n are selected
-- without regard to the segment, a hypergeometric count of mean n s / m and variance
-- n (s / m) (1 - s / m) (m - n) / (m - 1). Variants of an instance are drawn independently.
with shapes as (
    select
        split,
        num_selected as n,
        num_maskable as m,
        segment_b_start - 2 as s,
        count(*) as num_overlays
    from variants
    group by all
),

expectations as (
    select
        split,
        sum(num_overlays * n) as trials,
        sum(num_overlays * n * s / m) as expected,
        sum(
            num_overlays * n * (s / m) * (1 - s / m) * (m - n) / greatest(m - 1, 1)
        ) as variance
    from shapes
    group by split
),

chosen as (
    select
        split,
        count(*) as observed
    from masks
    where segment = 'A'
    group by split
),

final as (
    select
        expectations.split,
        coalesce(chosen.observed, 0) as observed,
        expectations.trials,
        expectations.expected,
        expectations.variance
    from expectations
    left join chosen using (split)
)

select
    split,
    observed,
    trials,
    expected,
    variance
from final
order by split;

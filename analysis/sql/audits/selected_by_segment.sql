-- question: Are A and B masked alike?
-- grain: one row per split
-- passes: as many tokens of A are selected as of any others
-- kind: sums
-- needs: variants, pairs, not words
-- Of an instance with m maskable tokens, s of them in the segment, n are selected without regard to
-- the segment: a hypergeometric count of mean n s / m and variance n (s/m) (1 - s/m) (m-n)/(m-1).
with counts as (
    select
        split,
        instance,
        variant,
        count(*) filter (where segment = 'A') as observed
    from masks
    group by split, instance, variant
),

laws as (
    select
        variants.split,
        counts.observed,
        variants.num_selected as n,
        variants.num_maskable as m,
        instances.segment_b_start - 2 as s
    from variants
    inner join counts using (split, instance, variant)
    inner join instances using (split, instance)
),

final as (
    select
        split,
        sum(observed) as observed,
        sum(n) as trials,
        sum(n * s / m) as expected,
        sum(n * (s / m) * (1 - s / m) * (m - n) / greatest(m - 1, 1)) as variance
    from laws
    group by split
)

select
    split,
    observed,
    trials,
    expected,
    variance
from final;

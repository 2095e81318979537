-- question: Are numbers of selected positions rounded up as often as their rest asks for?
-- grain: one row per split and variant
-- passes: as many are rounded up as the rests say
-- kind: sums
-- needs: variants, random_rounding, not words
-- Exact: of m maskable positions floor(p m + U) are selected, so 1 more than floor(p m) with
-- probability p m - floor(p m), independently; where the cap allows no more, always floor(p m).
with shapes as (
    select
        split,
        variant,
        num_maskable,
        num_selected,
        count(*) as num_overlays,
        getvariable('masked_lm_prob') * num_maskable as share,
        floor(share) as whole
    from variants
    group by all
),

final as (
    select
        split,
        variant,
        sum(num_overlays * (num_selected - whole)) as observed,
        sum(num_overlays) as trials,
        sum(num_overlays * (share - whole)) as expected,
        sum(num_overlays * (share - whole) * (1 - share + whole)) as variance
    from shapes
    where whole < getvariable('max_predictions')
    group by split, variant
)

select
    split,
    variant,
    observed,
    trials,
    expected,
    variance
from final;

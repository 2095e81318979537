-- question: Are numbers of selected positions rounded up as often as their rest asks for?
-- grain: one row per split and variant
-- passes: as many are rounded up as the rests say
-- failure: numbers rounded to the nearest or always one way.
-- kind: sums
-- needs: variants, random_rounding, not words
-- Exact: of m maskable positions floor(p m + U) are selected, so 1 more than floor(p m) with
-- probability p m - floor(p m), independently; where the cap allows no more, always floor(p m).
with shapes as (
    select
        split,
        variant,
        num_selected - fewest_asked as num_more,
        getvariable('masked_lm_prob') * num_maskable - fewest_asked as rest,
        count(*) as num_overlays
    from variants
    where fewest_asked < getvariable('max_predictions')
    group by all
),

final as (
    select
        split,
        variant,
        sum(num_overlays * num_more) as observed,
        sum(num_overlays) as trials,
        sum(num_overlays * rest) as expected,
        sum(num_overlays * rest * (1 - rest)) as variance
    from shapes
    group by split, variant
)

select
    split,
    variant,
    observed,
    trials,
    expected,
    variance
from final
order by split, variant;

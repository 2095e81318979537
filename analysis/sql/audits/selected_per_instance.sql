-- question: Does every variant select as many positions as the settings ask for?
-- grain: one row per split, shape and number of selected positions that is wrong
-- passes: there is none
-- kind: offences
-- needs: variants, not words
-- Rounded: the length times masked_lm_prob, halves to even, at least 1. At random: the whole part
-- of the maskable positions times masked_lm_prob, or 1 more if there is a rest. Never more than
-- the cap or than there are.
with shapes as (
    select
        split,
        num_tokens,
        num_maskable,
        num_selected,
        count(*) as num_overlays,
        min(instance) as first_instance
    from variants
    group by all
),

asked as (
    select
        *,
        case
            when getvariable('mask_count') = 'stochastic'
                then floor(getvariable('masked_lm_prob') * num_maskable)
            else greatest(1, round_even(num_tokens * getvariable('masked_lm_prob'), 0))
        end as fewest,
        case
            when getvariable('mask_count') = 'stochastic'
                then ceil(getvariable('masked_lm_prob') * num_maskable)
            else fewest
        end as most
    from shapes
),

final as (
    select
        split,
        num_tokens,
        num_maskable,
        num_selected,
        least(fewest, num_maskable, getvariable('max_predictions')) as least_right,
        least(most, num_maskable, getvariable('max_predictions')) as most_right,
        num_overlays,
        first_instance
    from asked
    where num_selected not between least_right and most_right
)

select
    split,
    num_tokens,
    num_maskable,
    num_selected,
    least_right,
    most_right,
    num_overlays,
    first_instance
from final;

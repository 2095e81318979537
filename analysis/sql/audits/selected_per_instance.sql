-- question: Does every variant select as many positions as the settings ask for?
-- grain: one row per split, shape and number of selected positions that is wrong
-- passes: there is none
-- failure: another probability or cap, or overlays that lost positions.
-- kind: offences
-- needs: variants, not words
-- Rounded: the length times masked_lm_prob, halves to even, at least 1. At random: the whole part
-- of the maskable positions times masked_lm_prob, or 1 more if there is a rest. Never more than
-- the cap or than there are.
with final as (
    select
        split,
        num_tokens,
        num_maskable,
        num_selected,
        least(num_maskable, getvariable('max_predictions'), fewest_asked) as least_right,
        least(num_maskable, getvariable('max_predictions'), most_asked) as most_right,
        count(*) as num_overlays,
        min(instance) as first_instance
    from variants
    where num_selected not between least_right and most_right
    group by all
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
from final
order by split, num_tokens, num_maskable, num_selected;

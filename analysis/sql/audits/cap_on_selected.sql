-- question: Does the cap on predictions leave instances with fewer than masked_lm_prob asks for?
-- grain: one row per split and length for which it does
-- passes: there is none
-- kind: offences
-- needs: variants
-- The cap is max_predictions_per_seq; by default it never bites. 20 at a length of 512 masks 3.9 %.
with shapes as (
    select
        split,
        num_tokens,
        num_maskable,
        count(*) as num_overlays,
        max(num_selected) as most_selected
    from variants
    group by all
),

final as (
    select
        split,
        num_tokens,
        num_maskable,
        case
            when getvariable('mask_count') = 'stochastic'
                then floor(getvariable('masked_lm_prob') * num_maskable)
            else round_even(num_tokens * getvariable('masked_lm_prob'), 0)
        end as asked_selected,
        getvariable('max_predictions') as cap,
        most_selected,
        num_overlays
    from shapes
    where asked_selected > cap
)

select
    split,
    num_tokens,
    num_maskable,
    asked_selected,
    cap,
    most_selected,
    num_overlays
from final;

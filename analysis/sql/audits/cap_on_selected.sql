-- question: Does the cap on predictions leave instances with fewer than masked_lm_prob asks for?
-- grain: one row per split and length for which it does
-- passes: there is none
-- failure: a max_predictions_per_seq that is too small for max_seq_length.
-- kind: offences
-- needs: variants
-- The cap is max_predictions_per_seq; by default it never bites. 20 at a length of 512 masks 3.9 %.
with final as (
    select
        split,
        num_tokens,
        num_maskable,
        fewest_asked as asked_selected,
        getvariable('max_predictions') as cap,
        max(num_selected) as most_selected,
        count(*) as num_overlays
    from variants
    where fewest_asked > getvariable('max_predictions')
    group by all
)

select
    split,
    num_tokens,
    num_maskable,
    asked_selected,
    cap,
    most_selected,
    num_overlays
from final
order by split, num_tokens, num_maskable;

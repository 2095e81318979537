-- question: Is a special token ever shown as a random one?
-- grain: one row per selected position that does
-- passes: there is none
-- failure: random tokens drawn from the whole vocabulary, as the original's code does.
-- kind: offences
-- needs: variants, ordinary_random_tokens
with final as (
    select
        split,
        instance,
        variant,
        position,
        shown_id
    from masks
    where
        action = 'random'
        and getvariable('ordinary_by_id')[shown_id::integer + 1] is not true
)

select
    split,
    instance,
    variant,
    position,
    shown_id
from final;

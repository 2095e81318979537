-- question: Is a special token ever shown as a random one?
-- grain: one row per selected position that does
-- passes: there is none
-- failure: random tokens drawn from the whole vocabulary, as the original's code does.
-- kind: offences
-- needs: variants, ordinary_random_tokens
with final as (
    select
        masks.split,
        masks.instance,
        masks.variant,
        masks.position,
        masks.shown_id
    from masks
    left join vocab on masks.shown_id = vocab.token_id
    where masks.action = 'random' and vocab.is_ordinary is not true
)

select
    split,
    instance,
    variant,
    position,
    shown_id
from final
order by split, instance, variant, position;

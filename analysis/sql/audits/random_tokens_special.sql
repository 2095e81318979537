-- question: Is a special token ever shown as a random one?
-- grain: one row per selected position that does
-- passes: there is none
-- kind: offences
-- needs: variants, ordinary_random_tokens
with final as (
    select
        masks.split,
        masks.instance,
        masks.variant,
        masks.position,
        vocab.piece
    from masks
    inner join vocab on masks.shown_id = vocab.token_id
    where masks.action = 'random' and not vocab.is_ordinary
)

select
    split,
    instance,
    variant,
    position,
    piece
from final;

-- question: Is a special token or padding ever selected?
-- grain: one row per selected position that holds a special token
-- passes: there is none
-- kind: offences
-- needs: variants
with final as (
    select
        masks.split,
        masks.instance,
        masks.variant,
        masks.position,
        vocab.piece
    from masks
    inner join vocab on masks.original_id = vocab.token_id
    where vocab.is_special
)

select
    split,
    instance,
    variant,
    position,
    piece
from final;

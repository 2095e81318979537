-- question: Is a special token or padding ever selected?
-- grain: one row per selected position that holds a special token
-- passes: there is none
-- failure: masks drawn over padding, or without sparing [CLS] and [SEP].
-- kind: offences
-- needs: variants
-- Special tokens belong to no word.
with final as (
    select
        split,
        instance,
        variant,
        position,
        original_id
    from masks
    where word_length = 0
)

select
    split,
    instance,
    variant,
    position,
    original_id
from final;

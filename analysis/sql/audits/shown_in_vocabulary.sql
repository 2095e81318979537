-- question: Is every shown token one of the vocabulary?
-- grain: one row per selected position that shows another id
-- passes: there is none
-- failure: masks drawn with a larger vocabulary, or ids that overflowed.
-- kind: offences
-- needs: variants
-- A model would read beyond its table of tokens. Ids of the tokens themselves are checked as they
-- are read.
with final as (
    select
        split,
        instance,
        variant,
        position,
        shown_id
    from masks
    where shown_id >= len(getvariable('pieces'))
)

select
    split,
    instance,
    variant,
    position,
    shown_id
from final;

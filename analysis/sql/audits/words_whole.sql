-- question: Is a word selected with all its pieces or not at all?
-- grain: one row per selected position whose neighbour in its word is not selected
-- passes: there is none
-- failure: masks of tokens, or other rules of where words begin.
-- kind: offences
-- needs: variants, words
-- A piece that continues a word belongs to the piece before it, unless that is a special token.
with selected as (
    select
        split,
        instance,
        variant,
        unnest(positions) as position,
        unnest([null] || positions[:-2]) as before,
        unnest(positions[2:] || [null]) as after,
        input_ids,
        word_lengths
    from variants
),

final as (
    select
        split,
        instance,
        variant,
        position
    from selected
    where
        (
            word_lengths[position] > 0
            and getvariable('continuation_by_id')[input_ids[position + 1]::integer + 1]
            and before is distinct from position - 1
        )
        or (
            word_lengths[position + 2] > 0
            and getvariable('continuation_by_id')[input_ids[position + 2]::integer + 1]
            and after is distinct from position + 1
        )
)

select
    split,
    instance,
    variant,
    position
from final;

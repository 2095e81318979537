-- question: Is a word selected with all its pieces or not at all?
-- grain: one row per selected position whose neighbour in its word is not selected
-- passes: there is none
-- kind: offences
-- needs: variants, words
-- A piece that continues a word belongs to the piece before it, unless that is a special token.
with pieces as (
    select list(is_continuation order by token_id) as continues
    from vocab
),

selected as (
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
        selected.split,
        selected.instance,
        selected.variant,
        selected.position
    from selected
    cross join pieces
    where
        (
            selected.word_lengths[selected.position] > 0
            and pieces.continues[selected.input_ids[selected.position + 1]::integer + 1]
            and selected.before is distinct from selected.position - 1
        )
        or (
            selected.word_lengths[selected.position + 2] > 0
            and pieces.continues[selected.input_ids[selected.position + 2]::integer + 1]
            and selected.after is distinct from selected.position + 1
        )
)

select
    split,
    instance,
    variant,
    position
from final;

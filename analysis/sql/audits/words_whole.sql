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

pieces as (
    select
        split,
        instance,
        variant,
        position,
        before,
        after,
        input_ids[position + 1]::integer as token_id,
        input_ids[position + 2]::integer as next_id,
        word_lengths[position] > 0 as is_after_text,
        word_lengths[position + 2] > 0 as is_before_text
    from selected
),

final as (
    select
        pieces.split,
        pieces.instance,
        pieces.variant,
        pieces.position
    from pieces
    left join vocab as own on pieces.token_id = own.token_id
    left join vocab as following on pieces.next_id = following.token_id
    where
        (
            own.is_continuation
            and pieces.is_after_text
            and pieces.before is distinct from pieces.position - 1
        )
        or (
            following.is_continuation
            and pieces.is_before_text
            and pieces.after is distinct from pieces.position + 1
        )
)

select
    split,
    instance,
    variant,
    position
from final
order by split, instance, variant, position;

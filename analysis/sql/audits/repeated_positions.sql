-- question: Are selected positions distinct, ascending and inside their instance?
-- grain: one row per selected position that is not above the one before it or is outside
-- passes: there is none
-- failure: positions drawn with replacement, or masks of other rows.
-- kind: offences
-- needs: variants
with selected as (
    select
        split,
        instance,
        variant,
        num_tokens,
        unnest(positions) as position,
        unnest([null] || positions[:-2]) as before
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
        position >= num_tokens
        or position <= before
)

select
    split,
    instance,
    variant,
    position
from final;

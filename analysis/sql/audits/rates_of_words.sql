-- question: Where do masks of whole words fall?
-- grain: one row per split and group of one kind: segment, twentieth of the length, band of tokens
--   that occur 2^k to 2^(k+1) - 1 times
-- passes: no law says which shares are right
-- kind: figures
-- needs: variants, words
-- A word that would overshoot the asked number is skipped, so long words are selected less often,
-- and with them what they are made of and where they stand.
with maskable as (
    select
        split,
        case when position < segment_b_start then 'A' else 'B' end as segment,
        floor(20 * (position + 0.5) / num_tokens)::integer as twentieth,
        token_id,
        count(*) as num_occurrences,
        sum(num_variants) as num_maskable
    from tokens
    where word_length > 0
    group by grouping sets ((split, segment), (split, twentieth), (split, token_id))
),

chosen as (
    select
        split,
        segment,
        floor(20 * relative_position)::integer as twentieth,
        original_id as token_id,
        count(*) as num_selected
    from masks
    group by grouping sets ((split, segment), (split, twentieth), (split, token_id))
),

joined as (
    select
        maskable.split,
        case
            when maskable.segment is not null then 'segment'
            when maskable.twentieth is not null then 'twentieth'
            else 'band'
        end as kind,
        coalesce(
            maskable.segment,
            maskable.twentieth::varchar,
            floor(log2(maskable.num_occurrences))::integer::varchar
        ) as value,
        chosen.num_selected,
        maskable.num_maskable
    from maskable
    left join chosen
        on
            maskable.split = chosen.split
            and maskable.segment is not distinct from chosen.segment
            and maskable.twentieth is not distinct from chosen.twentieth
            and maskable.token_id is not distinct from chosen.token_id
),

final as (
    select
        split,
        kind,
        value,
        coalesce(sum(num_selected), 0) as num_selected,
        sum(num_maskable) as num_maskable
    from joined
    group by split, kind, value
)

select
    split,
    kind,
    value,
    num_selected,
    num_maskable,
    num_selected / num_maskable as rate
from final
order by split, kind, try_cast(value as integer), value;

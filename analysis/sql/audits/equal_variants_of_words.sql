-- question: Are consecutive variants of whole words equal more often than they may be?
-- grain: one row per split
-- passes: no more are than a bound of their probability allows
-- failure: the same seed for every variant.
-- kind: excess
-- needs: variants, words
-- The first word selected is any of those that fit, each alike. If a variant selects c words of k
-- pieces in all, and G words have at most k pieces, the next one begins with one of the same with
-- probability c / G at most, and so is equal no more often: independent coins along the chain.
with neighbours as (
    select
        split,
        word_lengths,
        masks,
        unnest(range(1, len(masks))) as i
    from instance_rows
),

overlays as (
    select
        split,
        word_lengths,
        list_transform(masks[i], lambda shown: shown['position']::integer) as positions,
        list_transform(masks[i + 1], lambda shown: shown['position']::integer) as next_positions
    from neighbours
),

chances as (
    select
        split,
        positions = next_positions as are_equal,
        list_sum(list_transform(positions, lambda p: 1 / word_lengths[p + 1])) as num_chosen,
        list_sum(
            list_transform(
                list_filter(word_lengths, lambda w: w between 1 and len(positions)),
                lambda w: 1 / w
            )
        ) as num_fitting,
        least(1, coalesce(num_chosen / num_fitting, 1)) as probability
    from overlays
),

final as (
    select
        split,
        count(*) filter (where are_equal) as observed,
        count(*) as trials,
        sum(probability) as expected,
        sum(probability * (1 - probability)) as variance
    from chances
    group by split
)

select
    split,
    observed,
    trials,
    expected,
    variance
from final
order by split;

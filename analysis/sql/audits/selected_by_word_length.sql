-- question: Are the pieces of long words selected as often as short words?
-- grain: one row per split and number of pieces of a word
-- passes: pieces of words of each length are selected as often as they should be
-- failure: words selected and only some of their pieces masked, or pieces left out.
-- kind: sums
-- needs: variants, not words
-- Of an instance with m maskable positions n are selected, each with probability n / m. Those of
-- one group have a hypergeometric count; its exact mean is given, and for its variance that of
-- independent positions, which is larger, by (m - 1) / (m - s) for s positions.
with expectations as (
    select
        split,
        word_length,
        sum(num_variants) as trials,
        sum(expected_selected) as expected,
        sum(variance_selected) as variance
    from tokens
    where word_length > 0
    group by all
),

chosen as (
    select
        split,
        word_length,
        count(*) as observed
    from masks
    group by all
),

final as (
    select
        expectations.split,
        expectations.word_length,
        coalesce(chosen.observed, 0) as observed,
        expectations.trials,
        expectations.expected,
        expectations.variance
    from expectations
    left join chosen using (split, word_length)
)

select
    split,
    word_length,
    observed,
    trials,
    expected,
    variance
from final
order by split, word_length;

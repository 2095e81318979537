-- question: Is every token of the vocabulary selected as often as any other?
-- grain: one row per split and token that occurs
-- passes: each token is selected as often as its occurrences should be
-- failure: a token left out of masking or preferred, such as punctuation.
-- kind: sums
-- needs: variants, not words
-- Of an instance with m maskable positions n are selected, each with probability n / m. Those of
-- one group have a hypergeometric count; its exact mean is given, and for its variance that of
-- independent positions, which is larger, by (m - 1) / (m - s) for s positions.
with expectations as (
    select
        split,
        token_id,
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
        original_id as token_id,
        count(*) as observed
    from masks
    group by all
),

final as (
    select
        expectations.split,
        expectations.token_id,
        coalesce(chosen.observed, 0) as observed,
        expectations.trials,
        expectations.expected,
        expectations.variance
    from expectations
    left join chosen using (split, token_id)
)

select
    split,
    token_id,
    observed,
    trials,
    expected,
    variance
from final
order by split, token_id;

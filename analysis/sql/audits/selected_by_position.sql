-- question: Is every part of an instance masked alike?
-- grain: one row per split and twentieth of the length
-- passes: positions in each twentieth are selected as often as they should be
-- failure: masks drawn before truncation or over padding, so that ends differ from the middle.
-- kind: sums
-- needs: variants, not words
-- Of an instance with m maskable positions n are selected, each with probability n / m. Those of
-- one group have a hypergeometric count; its exact mean is given, and for its variance that of
-- independent positions, which is larger, by (m - 1) / (m - s) for s positions.
with expectations as (
    select
        split,
        floor(20 * (position + 0.5) / num_tokens)::integer as twentieth,
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
        floor(20 * relative_position)::integer as twentieth,
        count(*) as observed
    from masks
    group by all
),

final as (
    select
        expectations.split,
        expectations.twentieth,
        coalesce(chosen.observed, 0) as observed,
        expectations.trials,
        expectations.expected,
        expectations.variance
    from expectations
    left join chosen using (split, twentieth)
)

select
    split,
    twentieth,
    observed,
    trials,
    expected,
    variance
from final
order by split, twentieth;

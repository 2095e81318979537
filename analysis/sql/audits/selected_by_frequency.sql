-- question: Are frequent and rare tokens masked alike?
-- grain: one row per split and band of tokens that occur 2^k to 2^(k+1) - 1 times
-- passes: the tokens of each band are selected as often as they should be
-- failure: tokens left out of masking or preferred, by how common they are.
-- kind: sums
-- needs: variants, not words
-- Of an instance with m maskable positions n are selected, each with probability n / m. Those of
-- one group have a hypergeometric count; its exact mean is given, and for its variance that of
-- independent positions, which is larger, by (m - 1) / (m - s) for s positions.
with occurrences as (
    select
        split,
        token_id,
        floor(log2(count(*)))::integer as k,
        sum(num_variants) as trials,
        sum(expected_selected) as expected,
        sum(variance_selected) as variance
    from tokens
    where word_length > 0
    group by split, token_id
),

chosen as (
    select
        split,
        original_id as token_id,
        count(*) as observed
    from masks
    group by split, original_id
),

final as (
    select
        occurrences.split,
        occurrences.k,
        coalesce(sum(chosen.observed), 0) as observed,
        sum(occurrences.trials) as trials,
        sum(occurrences.expected) as expected,
        sum(occurrences.variance) as variance
    from occurrences
    left join chosen using (split, token_id)
    group by occurrences.split, occurrences.k
)

select
    split,
    k,
    observed,
    trials,
    expected,
    variance
from final
order by split, k;

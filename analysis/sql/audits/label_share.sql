-- question: How many pairs are random, against the exact expectation that the manifest states?
-- grain: one row per split and source
-- passes: no verdict
-- kind: figures
-- needs: whole, pairs
-- The expectation is exact, but labels are not independent, as a random pair gives sentences back,
-- and the spread depends on the lengths of sentences, which a dataset does not hold. So there is no
-- verdict here but in label_coin. Documents are drawn independently: `standard_error` comes from
-- the deviation of each, its random pairs less the expected ones, less the same of all its pairs
-- times the expected share. With many documents `z` is about standard normal. Labels that are
-- steered (nsp_balance exact) have no expectation.
with drawn as (
    select
        a_document_id as document_id,
        count(*) filter (where next_sentence_label = 1) as num_random,
        count(*) filter (where next_sentence_label = 0) as num_next
    from pairs
    group by a_document_id
),

expected as (
    select
        split,
        source,
        random as expected_random,
        next as expected_next,
        random / (random + next) as expected_share
    from label_expectations
    where random + next > 0
),

deviations as (
    select
        documents.split,
        documents.source,
        coalesce(drawn.num_random, 0) as num_random,
        coalesce(drawn.num_next, 0) as num_next,
        num_random - documents.expected_random as random_deviation,
        num_next - documents.expected_next as next_deviation
    from documents
    left join drawn using (document_id)
    where documents.fate = 'kept'
),

sums as (
    select
        deviations.split,
        deviations.source,
        sum(deviations.num_random)::bigint as num_random,
        sum(deviations.num_next)::bigint as num_next,
        max(expected.expected_random) as expected_random,
        max(expected.expected_next) as expected_next,
        max(expected.expected_share) as expected_share,
        sqrt(sum(power(
            deviations.random_deviation * (1 - expected.expected_share)
            - deviations.next_deviation * expected.expected_share,
            2
        ))) as standard_deviation
    from deviations
    left join expected using (split, source)
    group by deviations.split, deviations.source
),

final as (
    select
        split,
        source,
        num_random,
        num_next,
        num_random / (num_random + num_next) as random_share,
        expected_share,
        standard_deviation / (expected_random + expected_next) as standard_error,
        (random_share - expected_share) / nullif(standard_error, 0) as z
    from sums
)

select
    split,
    source,
    num_random,
    num_next,
    round(random_share, 6) as random_share,
    round(expected_share, 6) as expected_share,
    round(standard_error, 6) as standard_error,
    round(z, 3) as z
from final
order by split, source;

-- question: Does the manifest expect the labels that its documents do?
-- grain: one row per split, source and label for which the sums differ
-- passes: there is none
-- failure: a manifest or documents of another build.
-- kind: offences
-- needs: pairs
-- Each kept document has the exact expectation of its random and next pairs. Sums in another order
-- may differ by 1e-9 of them.
with summed as (
    select
        split,
        source,
        sum(expected_random) as random,
        sum(expected_next) as next
    from documents
    where fate = 'kept'
    group by split, source
),

documented as (
    unpivot summed on random, next into name label value expected
),

stated as (
    unpivot label_expectations on random, next into name label value expected
),

final as (
    select
        coalesce(stated.split, documented.split) as split,
        coalesce(stated.source, documented.source) as source,
        coalesce(stated.label, documented.label) as label,
        coalesce(stated.expected, 0) as stated_by_manifest,
        coalesce(documented.expected, 0) as sum_of_documents
    from stated
    full join documented
        on
            stated.split = documented.split
            and stated.source = documented.source
            and stated.label = documented.label
    where abs(stated_by_manifest - sum_of_documents) > 1e-9 * greatest(sum_of_documents, 1)
)

select
    split,
    source,
    label,
    stated_by_manifest,
    sum_of_documents
from final
order by split, source, label;

-- question: Were as many documents held out for validation as asked?
-- grain: one row, of the documents that make instances
-- passes: as many as of that many independent documents, each held out with validation_fraction
-- failure: a split that was drawn otherwise, or documents lost from one side.
-- kind: shares
-- needs: hashed_split
-- A document is held out if a hash of its id is below a threshold. Where either split would have
-- fewer documents than the recipe needs, the threshold was moved so that it has just as many. Then
-- the count is max(binomial, needed), whose lower tail alone is that of the law: the row is there
-- only if the split has more, or if the law's median is not below the number needed, so that the
-- upper tail is no evidence.
with counts as (
    select
        count(*) filter (where split = 'validation') as observed,
        count(*) as trials,
        getvariable('validation_fraction') as probability,
        case getvariable('recipe') when 'bert' then 2 else 1 end as needed
    from documents
    where fate = 'kept'
),

final as (
    select
        observed,
        trials,
        probability
    from counts
    where
        trials >= 2 * needed
        and (observed > needed or trials * probability >= needed)
        and (trials - observed > needed or trials * (1 - probability) >= needed)
)

select
    observed,
    trials,
    probability
from final;

-- question: Do the documents add up to the ledger?
-- grain: one row per count of the ledger that the documents files do not give
-- passes: there is none
-- failure: documents that were lost or added after they were counted.
-- kind: offences
-- needs: whole
-- The ledger counts every document read and its tokens: kept, left out by a named reason, or a
-- duplicate of another.
with fates as (
    select
        split,
        fate as reason,
        1 as times,
        num_tokens,
        num_unknown
    from documents
    union all
    select
        split,
        'duplicate' as reason,
        num_duplicates as times,
        num_tokens,
        num_unknown
    from documents
),

sums as (
    select
        split,
        reason,
        sum(times) as num_documents,
        sum(times * num_tokens) as num_tokens,
        sum(times * num_unknown) as num_unknown
    from fates
    group by split, reason
),

recounted as (
    select
        'documents' as section,
        split,
        reason,
        num_documents as recount
    from sums
    union all
    select
        'document_tokens' as section,
        split,
        reason,
        num_tokens as recount
    from sums
    union all
    select
        'unknown_tokens' as section,
        split,
        reason,
        num_unknown as recount
    from sums
    union all
    select
        'pass_tokens' as section,
        split,
        'own' as reason,
        sum(num_tokens * num_passes) as recount
    from documents
    group by split
    union all
    select
        'records' as section,
        '' as split,
        'documents_read' as reason,
        sum(num_documents) as recount
    from sums
    union all
    select
        'tokens' as section,
        '' as split,
        'read' as reason,
        sum(num_tokens) as recount
    from sums
),

stated as (
    select
        section,
        split,
        reason,
        count as stated
    from ledger
    where
        section in ('documents', 'document_tokens', 'unknown_tokens', 'tokens')
        or (section = 'pass_tokens' and reason = 'own')
        or (section = 'records' and reason = 'documents_read')
),

final as (
    select
        section,
        split,
        reason,
        coalesce(stated.stated, 0) as stated,
        coalesce(recounted.recount, 0)::bigint as recounted
    from stated
    full join recounted using (section, split, reason)
)

select
    section,
    split,
    reason,
    stated,
    recounted
from final
where stated <> recounted
order by section, split, reason;

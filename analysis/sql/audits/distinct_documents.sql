-- question: Does every document have one row, and passes only if it was kept?
-- grain: one row per document that does not
-- passes: there is none
-- failure: a document that two tasks wrote, or parts of two builds.
-- kind: offences
with final as (
    select
        document_id,
        count(*) as num_rows,
        count(distinct split) as num_splits,
        min(fate) as fate,
        min(num_passes) as num_passes
    from documents
    group by document_id
)

select
    document_id,
    num_rows,
    num_splits,
    fate,
    num_passes
from final
where num_rows > 1 or (num_passes > 0) <> (fate = 'kept')
order by document_id;

-- question: Is every document drawn as often as dupe_factor times the weight of its source?
-- grain: one row per document that is drawn another number of times
-- passes: there is none
-- failure: a weight or dupe_factor that was not followed.
-- kind: offences
-- A fraction is a chance: at 1.5 a document is drawn once or twice. Only documents with the
-- sentences that are asked for are drawn.
with asked as (
    select
        documents.document_id,
        documents.split,
        documents.source,
        documents.num_passes,
        getvariable('dupe_factor') * sources.weight as expected_passes
    from documents
    inner join sources using (source)
    where documents.fate in ('kept', 'unsampled')
),

final as (
    select
        document_id,
        split,
        source,
        num_passes,
        expected_passes
    from asked
    where num_passes not between floor(expected_passes) and ceil(expected_passes)
)

select
    document_id,
    split,
    source,
    num_passes,
    expected_passes
from final
order by document_id;

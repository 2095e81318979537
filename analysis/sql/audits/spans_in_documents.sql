-- question: Does every span lie within a document that was kept, and of its own split?
-- grain: one row per span that does not
-- passes: there is none
-- failure: documents files of another build, or rows in the wrong split.
-- kind: offences
with named as (
    select
        spans.split,
        spans.instance,
        spans.span,
        spans.document_id,
        documents.split as document_split,
        documents.fate,
        documents.num_sentences,
        spans.first_sentence::bigint + spans.num_sentences as stop_sentence
    from spans
    left join documents using (document_id)
),

final as (
    select
        split,
        instance,
        span,
        document_id,
        case
            when fate is null then 'no such document'
            when document_split <> split then 'document of ' || document_split
            when fate <> 'kept' then 'document was left out: ' || fate
            when stop_sentence > num_sentences then 'ends after its document'
        end as offence
    from named
)

select
    split,
    instance,
    span,
    document_id,
    offence
from final
where offence is not null
order by split, instance, span;

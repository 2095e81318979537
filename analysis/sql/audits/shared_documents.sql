-- question: Do the instances of train and of validation share a document, as A or as B?
-- grain: one row per document in instances of both
-- passes: there is none
-- failure: a split that was made by rows and not by documents.
-- kind: offences
-- needs: validation
with final as (
    select
        document_id,
        count(*) filter (where split = 'train') as num_train_spans,
        count(*) filter (where split = 'validation') as num_validation_spans
    from spans
    group by document_id
)

select
    document_id,
    num_train_spans,
    num_validation_spans
from final
where num_train_spans > 0 and num_validation_spans > 0
order by document_id;

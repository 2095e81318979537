-- question: Does B come from another document in every pair that is labelled random?
-- grain: one row per instance labelled random with A and B of one document
-- passes: there is none
-- failure: a partner drawn among all sentences, those of A's document too.
-- kind: offences
-- needs: pairs
-- Kept copies of one text (duplicates keep) have ids of their own, which only `clozemill verify`
-- can tell.
with final as (
    select
        split,
        instance,
        a_document_id,
        a_first_sentence,
        b_document_id,
        b_first_sentence
    from pairs
    where next_sentence_label = 1 and b_document_id is not distinct from a_document_id
)

select
    split,
    instance,
    a_document_id,
    a_first_sentence,
    b_document_id,
    b_first_sentence
from final;

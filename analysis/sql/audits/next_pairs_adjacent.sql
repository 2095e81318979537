-- question: Does B follow A in the same document in every pair that is labelled next?
-- grain: one row per instance labelled next whose B begins elsewhere
-- passes: there is none
-- failure: labels that have slipped to other rows, or B taken from elsewhere.
-- kind: offences
-- needs: pairs
with final as (
    select
        split,
        instance,
        a_document_id,
        a_first_sentence,
        a_num_sentences,
        b_document_id,
        b_first_sentence
    from pairs
    where
        next_sentence_label = 0
        and (
            b_document_id is distinct from a_document_id
            or b_first_sentence is distinct from a_first_sentence + a_num_sentences
        )
)

select
    split,
    instance,
    a_document_id,
    a_first_sentence,
    a_num_sentences,
    b_document_id,
    b_first_sentence
from final;

-- question: Are A and B made of the chunk that the pair was drawn from?
-- grain: one row per instance whose spans do not fit its chunk
-- passes: there is none
-- failure: labels that have slipped to other rows, or segments cut after the pair was made.
-- kind: offences
-- needs: pairs
-- A next B is the rest of the chunk after A. A random B displaces at least one sentence of it, if
-- there are two.
with final as (
    select
        split,
        instance,
        next_sentence_label,
        num_chunk_sentences,
        a_num_sentences,
        b_num_sentences
    from pairs
    where
        case next_sentence_label
            when 0 then a_num_sentences + b_num_sentences <> num_chunk_sentences
            else a_num_sentences > greatest(num_chunk_sentences - 1, 1)
        end
)

select
    split,
    instance,
    next_sentence_label,
    num_chunk_sentences,
    a_num_sentences,
    b_num_sentences
from final;

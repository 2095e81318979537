-- question: Is every packed row one segment, without a label?
-- grain: one row per instance that is not
-- passes: there is none
-- failure: rows of another recipe.
-- kind: offences
-- needs: not pairs
with final as (
    select
        split,
        instance,
        num_tokens,
        segment_b_start,
        next_sentence_label,
        num_chunk_sentences
    from instances
    where
        segment_b_start <> num_tokens
        or next_sentence_label is not null
        or num_chunk_sentences <> 0
)

select
    split,
    instance,
    num_tokens,
    segment_b_start,
    next_sentence_label,
    num_chunk_sentences
from final;

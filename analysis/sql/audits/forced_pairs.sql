-- question: Is every pair random whose chunk has one sentence, and so no next one?
-- grain: one row per instance whose chunk has no second sentence and whose label is not 1
-- passes: there is none
-- failure: labels that were balanced or have slipped to other rows.
-- kind: offences
-- needs: pairs
with final as (
    select
        split,
        instance,
        source,
        num_chunk_sentences,
        next_sentence_label
    from pairs
    where num_chunk_sentences < 2 and next_sentence_label is distinct from 1
)

select
    split,
    instance,
    source,
    num_chunk_sentences,
    next_sentence_label
from final;

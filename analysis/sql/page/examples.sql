-- question: Which instances show a person what there is?
-- grain: one row per split, label and whether the pair was forced: its first instance
select
    split,
    min(instance) as instance
from instances
group by split, next_sentence_label, num_chunk_sentences = 1
order by split, instance;

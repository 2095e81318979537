-- question: Is every pair [CLS] A [SEP] B [SEP], of two spans, neither of them empty, with a label?
-- grain: one row per instance that is not
-- passes: there is none
-- failure: truncation that empties a segment, or rows of another recipe.
-- kind: offences
-- needs: pairs
with final as (
    select
        split,
        instance,
        case
            when len(spans) <> 2 then 'not two spans'
            when coalesce(next_sentence_label, -1) not in (0, 1) then 'no label'
            when segment_b_start < 3 or spans[1].num_sentences = 0 then 'A is empty'
            when segment_b_start > len(input_ids) - 2 or spans[2].num_sentences = 0
                then 'B is empty'
            when input_ids[segment_b_start] <> getvariable('sep_id') then 'no [SEP] before B'
        end as offence
    from instance_rows
)

select
    split,
    instance,
    offence
from final
where offence is not null;

-- question: What share of a model's input would be padding?
-- grain: one row per split
-- passes: no verdict
-- kind: figures
-- Either all rows are padded to max_seq_length, or each 32 rows that stand together to the longest
-- of them. clozemill's own trainer groups rows of similar lengths, or pads none.
with batches as (
    select
        split,
        instance // 32 as batch,
        count(*) as num_instances,
        sum(num_tokens) as num_tokens,
        max(num_tokens) as longest
    from instances
    group by split, batch
),

final as (
    select
        split,
        sum(num_instances)::bigint as num_instances,
        sum(num_tokens)::bigint as num_tokens,
        1 - sum(num_tokens) / (sum(num_instances) * getvariable('max_seq_length'))
            as padding_to_max_seq_length,
        1 - sum(num_tokens) / sum(num_instances * longest) as padding_to_longest_of_32
    from batches
    group by split
)

select
    split,
    num_instances,
    num_tokens,
    round(num_tokens / num_instances, 3) as mean_tokens,
    round(padding_to_max_seq_length, 6) as padding_to_max_seq_length,
    round(padding_to_longest_of_32, 6) as padding_to_longest_of_32
from final
order by split;

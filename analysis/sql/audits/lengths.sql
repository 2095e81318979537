-- question: How long are the instances?
-- grain: one row per split and tenth of max_seq_length
-- passes: no verdict
-- kind: figures
with tenths as (
    select
        split,
        ceil(10 * num_tokens / getvariable('max_seq_length')) as tenth,
        count(*) as num_instances,
        sum(num_tokens) as num_tokens
    from instances
    group by split, tenth
),

final as (
    select
        split,
        floor(tenth * getvariable('max_seq_length') / 10)::bigint as up_to_tokens,
        num_instances,
        num_instances / sum(num_instances) over (partition by split) as share,
        num_tokens / num_instances as mean_tokens
    from tenths
)

select
    split,
    up_to_tokens,
    num_instances,
    round(share, 6) as share,
    round(mean_tokens, 3) as mean_tokens
from final
order by split, up_to_tokens;

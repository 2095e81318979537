-- question: Does every row begin with [CLS], and end each of its spans with a [SEP]?
-- grain: one row per instance that does not, or that has no span
-- passes: there is none
-- failure: rows cut after their [SEP] was set, or put together in another format.
-- kind: offences
with final as (
    select
        split,
        instance,
        len(spans) as num_spans,
        len(list_filter(input_ids, lambda token: token = getvariable('sep_id'))) as num_separators,
        input_ids[1] as first_id,
        input_ids[len(input_ids)] as last_id
    from instance_rows
)

select
    split,
    instance,
    num_spans,
    num_separators,
    first_id,
    last_id
from final
where
    num_spans < 1
    or num_separators <> num_spans
    or first_id <> getvariable('cls_id')
    or last_id <> getvariable('sep_id');

-- question: What share of the maskable tokens is selected?
-- grain: one row per split and group of one kind: all, variant, source, word length
-- passes: no law says which shares are right
-- kind: figures
-- needs: variants
-- By variant and source the numbers are fixed by the settings (see selected_per_instance). Whole
-- words are less often selected the longer they are, as a word that would overshoot is skipped.
with by_overlay as (
    select
        split,
        case
            when grouping(variant) = 0 then 'variant'
            when grouping(source) = 0 then 'source'
            else 'all'
        end as kind,
        coalesce(variant::varchar, source, '') as value,
        sum(num_selected) as num_selected,
        sum(num_maskable) as num_maskable
    from variants
    group by grouping sets ((split), (split, variant), (split, source))
),

maskable as (
    select
        split,
        word_length,
        sum(num_variants) as num_maskable
    from tokens
    where word_length > 0
    group by split, word_length
),

chosen as (
    select
        split,
        word_length,
        count(*) as num_selected
    from masks
    group by split, word_length
),

by_word_length as (
    select
        maskable.split,
        'word length' as kind,
        maskable.word_length::varchar as value,
        coalesce(chosen.num_selected, 0) as num_selected,
        maskable.num_maskable
    from maskable
    left join chosen using (split, word_length)
),

final as (
    select * from by_overlay
    union all
    select * from by_word_length
)

select
    split,
    kind,
    value,
    num_selected,
    num_maskable,
    num_selected / num_maskable as rate
from final
order by split, kind, try_cast(value as integer), value;

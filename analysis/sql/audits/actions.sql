-- question: Do selected positions show [MASK], a random token and the original as often as asked?
-- grain: one row per split and what is shown
-- passes: the counts are those of independent draws, a chi-square test for each split
-- kind: counts
-- needs: variants
-- A random token may be the original one, which then looks kept.
with shown as (
    select
        split,
        count(*) as num_selected,
        count(*) filter (where action = 'mask') as num_mask,
        count(*) filter (where action = 'keep') as num_keep,
        count(*) filter (where action = 'random') as num_random
    from masks
    group by split
),

probabilities as (
    select
        getvariable('mask_token_prob') as mask_prob,
        getvariable('random_token_prob') * (1 - 1 / getvariable('num_ordinary')) as random_prob
),

categories as (
    select unnest(['mask', 'random', 'keep']) as category
),

final as (
    select
        shown.split,
        categories.category,
        case categories.category
            when 'mask' then shown.num_mask
            when 'random' then shown.num_random
            else shown.num_keep
        end as observed,
        shown.num_selected * case categories.category
            when 'mask' then probabilities.mask_prob
            when 'random' then probabilities.random_prob
            else 1 - probabilities.mask_prob - probabilities.random_prob
        end as expected
    from shown
    cross join probabilities
    cross join categories
)

select
    split,
    category,
    observed,
    expected
from final;

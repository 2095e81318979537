-- question: Do selected positions show [MASK], a random token and the original as often as asked?
-- grain: one row per split and what is shown
-- passes: each count is that of independent draws
-- failure: other probabilities than the settings', or one draw for several tokens.
-- kind: shares
-- needs: variants
-- Exact: a binomial law for each action. A random token may be the original one, which then looks
-- kept, or with random tokens from the whole vocabulary [MASK]. Originals that are never drawn,
-- such as [UNK], are left out, so that all draws have one law.
with pool as (
    select token_id
    from vocab
    where is_ordinary or getvariable('random_tokens') = 'all'
),

shown as (
    select
        masks.split,
        count(*) as trials,
        count(*) filter (where masks.action = 'mask') as num_mask,
        count(*) filter (where masks.action = 'random') as num_random,
        count(*) filter (where masks.action = 'keep') as num_keep
    from masks
    inner join vocab on masks.original_id = vocab.token_id
    where vocab.is_ordinary or getvariable('random_tokens') = 'all'
    group by masks.split
),

probabilities as (
    select
        getvariable('mask_token_prob')
        + getvariable('random_token_prob') * is_mask_drawn / num_drawn as mask_prob,
        getvariable('random_token_prob')
        * (1 - (1 + is_mask_drawn) / num_drawn) as random_prob
    from (
        select
            count(*) as num_drawn,
            count(*) filter (where token_id = getvariable('mask_id')) as is_mask_drawn
        from pool
    )
),

final as (
    select
        shown.split,
        actions.action,
        case actions.action
            when 'mask' then shown.num_mask
            when 'random' then shown.num_random
            else shown.num_keep
        end as observed,
        shown.trials,
        case actions.action
            when 'mask' then probabilities.mask_prob
            when 'random' then probabilities.random_prob
            else 1 - probabilities.mask_prob - probabilities.random_prob
        end as probability
    from shown
    cross join probabilities
    cross join (values ('mask'), ('random'), ('keep')) as actions (action)
)

select
    split,
    action,
    observed,
    trials,
    probability
from final
order by split, action;

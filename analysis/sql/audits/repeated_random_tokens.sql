-- question: Do different instances show the same random tokens more often than by chance?
-- grain: one row per split and number of random tokens, from 2 on
-- passes: no more instances repeat the random tokens of another than by chance
-- failure: one seed for every shard, worker or row.
-- kind: excess
-- needs: variants
-- For masks of tokens and of words. R tokens may be drawn, evenly, and one that looks random is any
-- of the R - 1 that are not the original. So the r random tokens of the j-th instance, in order,
-- are those of an earlier one with probability at most (j - 1) / (R - 1)^r, whatever came before: N
-- instances have no more repeats than independent coins, with the mean N (N - 1) / 2 / (R - 1)^r.
-- One seed for every row or shard repeats them throughout. Of each instance one variant is looked
-- at, as in repeated_masks.
with pool as (
    select count(*) as num_pool
    from vocab
    where
        token_id != getvariable('mask_id')
        and (is_ordinary or getvariable('random_tokens') = 'all')
),

pieces as (
    select
        split,
        list_zip(
            list_transform(overlay, lambda shown: shown['token_id']::integer),
            list_select(
                input_ids,
                list_transform(overlay, lambda shown: shown['position']::integer + 1)
            )
        ) as shown_and_original
    from variants
    where variant = hash(instance) % num_variants
),

drawn as (
    select
        split,
        list_transform(
            list_filter(
                shown_and_original,
                lambda pair: pair[1] != pair[2] and pair[1] != getvariable('mask_id')
            ),
            lambda pair: pair[1]
        ) as tokens
    from pieces
),

distinct_tokens as (
    select
        split,
        tokens,
        count(*) as num_instances
    from drawn
    where len(tokens) > 1
    group by all
),

counts as (
    select
        split,
        len(tokens) as num_random,
        sum(num_instances) as trials,
        sum(num_instances - 1) as observed
    from distinct_tokens
    group by all
),

final as (
    select
        counts.split,
        counts.num_random,
        counts.observed,
        counts.trials,
        least(
            counts.trials,
            counts.trials * (counts.trials - 1) / 2
            / power(greatest(pool.num_pool - 1, 1), counts.num_random)
        ) as expected,
        expected as variance
    from counts
    cross join pool
    where counts.trials > 1
)

select
    split,
    num_random,
    observed,
    trials,
    expected,
    variance
from final
order by split, num_random;

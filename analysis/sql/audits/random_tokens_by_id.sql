-- question: Is every token drawn as a random one as often as any other?
-- grain: one row per split and token that may be drawn
-- passes: each is drawn as often as it should be
-- failure: a pool of random tokens that lacks or repeats one, or a draw with an end off by one.
-- kind: shares
-- needs: variants
-- Exact: R tokens may be drawn, evenly. A draw that equals the original, or is [MASK], does not
-- look random; any other is one of the R - 1 that are not the original. So of the draws over
-- another original, a token has a binomial count of probability 1 / (R - 1).
with pool as (
    select token_id
    from vocab
    where
        token_id != getvariable('mask_id')
        and (is_ordinary or getvariable('random_tokens') = 'all')
),

size as (
    select count(*) as num_pool
    from pool
),

counts as (
    select
        masks.split,
        masks.original_id,
        masks.shown_id,
        count(*) as num_draws
    from masks
    inner join vocab on masks.original_id = vocab.token_id
    where
        masks.action = 'random'
        and (vocab.is_ordinary or getvariable('random_tokens') = 'all')
    group by grouping sets (
        (masks.split), (masks.split, masks.original_id), (masks.split, masks.shown_id)
    )
),

final as (
    select
        totals.split,
        pool.token_id,
        coalesce(shown.num_draws, 0) as observed,
        totals.num_draws - coalesce(originals.num_draws, 0) as trials,
        1 / (size.num_pool - 1) as probability
    from counts as totals
    cross join pool
    cross join size
    left join counts as originals
        on totals.split = originals.split and pool.token_id = originals.original_id
    left join counts as shown
        on totals.split = shown.split and pool.token_id = shown.shown_id
    where
        totals.original_id is null
        and totals.shown_id is null
)

select
    split,
    token_id,
    observed,
    trials,
    probability
from final
order by split, token_id;

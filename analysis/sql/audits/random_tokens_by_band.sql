-- question: Are random tokens drawn from the whole vocabulary evenly?
-- grain: one row per split and fiftieth of the tokens that may be drawn, by id
-- passes: as many draws fall into each as should
-- failure: a pool of random tokens that lacks or repeats a part of the vocabulary.
-- kind: sums
-- needs: variants
-- Exact mean and variance: R tokens may be drawn, evenly, and one that looks random is not the
-- original (see random_tokens_by_id). So it falls into a band of b tokens with probability
-- b / (R - 1), or (b - 1) / (R - 1) if the original is of the band.
with pool as (
    select
        token_id,
        ntile(50) over (order by token_id) as band
    from vocab
    where
        token_id != getvariable('mask_id')
        and (is_ordinary or getvariable('random_tokens') = 'all')
),

size as (
    select count(*) as num_pool
    from pool
),

bands as (
    select
        pool.band,
        count(*) / (size.num_pool - 1) as other_prob,
        (count(*) - 1) / (size.num_pool - 1) as own_prob
    from pool
    cross join size
    group by pool.band, size.num_pool
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

by_band as (
    select
        counts.split,
        pool.band,
        sum(counts.num_draws) filter (where counts.original_id is not null) as num_originals,
        sum(counts.num_draws) filter (where counts.shown_id is not null) as num_shown
    from counts
    inner join pool on pool.token_id = coalesce(counts.original_id, counts.shown_id)
    group by all
),

laws as (
    select
        totals.split,
        bands.band,
        coalesce(by_band.num_shown, 0) as observed,
        totals.num_draws as trials,
        coalesce(by_band.num_originals, 0) as num_own,
        totals.num_draws - num_own as num_other,
        bands.own_prob,
        bands.other_prob
    from counts as totals
    cross join bands
    left join by_band on totals.split = by_band.split and bands.band = by_band.band
    where
        totals.original_id is null
        and totals.shown_id is null
),

final as (
    select
        split,
        band,
        observed,
        trials,
        num_own * own_prob + num_other * other_prob as expected,
        num_own * own_prob * (1 - own_prob)
        + num_other * other_prob * (1 - other_prob) as variance
    from laws
)

select
    split,
    band,
    observed,
    trials,
    expected,
    variance
from final
order by split, band;

-- question: Are random tokens drawn from the whole vocabulary evenly?
-- grain: one row per split and fiftieth of the tokens that may be drawn, by id
-- passes: as many draws fall into each as should
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
        originals.band as original_band,
        shown.band as shown_band,
        count(*) as num_draws
    from masks
    inner join pool as originals on masks.original_id = originals.token_id
    left join pool as shown on masks.shown_id = shown.token_id
    where masks.action = 'random'
    group by all
),

laws as (
    select
        counts.split,
        bands.band,
        counts.num_draws,
        case when counts.shown_band = bands.band then counts.num_draws else 0 end as num_shown,
        case
            when counts.original_band = bands.band then bands.own_prob
            else bands.other_prob
        end as probability
    from counts
    cross join bands
),

final as (
    select
        split,
        band,
        sum(num_shown) as observed,
        sum(num_draws) as trials,
        sum(num_draws * probability) as expected,
        sum(num_draws * probability * (1 - probability)) as variance
    from laws
    group by split, band
)

select
    split,
    band,
    observed,
    trials,
    expected,
    variance
from final;

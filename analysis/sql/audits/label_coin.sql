-- question: Does a fair coin decide whether B is random, wherever A could have a next sentence?
-- grain: one row per split, of all sources and of each
-- passes: as many pairs are random as heads of that many fair coins
-- failure: labels that were balanced, filtered by or have slipped, or copied rows.
-- kind: shares
-- needs: pairs, coin
-- A chunk of two or more sentences draws one coin, whatever was drawn before. A random pair gives
-- sentences back, which then draw again, so the number of coins follows from how they fell and the
-- binomial law is not exact. Its tails are above the true ones wherever these were computed: see
-- tests/analysis/test_pair_laws.py.
with final as (
    select
        split,
        if(grouping(source) = 1, 'all sources', source) as source,
        count(*) filter (where next_sentence_label = 1) as observed,
        count(*) as trials,
        0.5 as probability
    from pairs
    where num_chunk_sentences >= 2
    group by grouping sets ((split), (split, source))
)

select
    split,
    source,
    observed,
    trials,
    probability
from final
order by split, source;

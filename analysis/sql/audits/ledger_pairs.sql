-- question: Do the pairs and their tokens add up to the ledger?
-- grain: one row per count of the ledger that the rows do not give
-- passes: there is none
-- failure: rows that were lost or added after they were counted.
-- kind: offences
-- needs: whole, pairs
-- A is its document's own, and so is a next B; a random B is borrowed.
with counts as (
    select
        split,
        next_sentence_label = 0 as is_next,
        count(*) as num_pairs,
        count(*) filter (where num_chunk_sentences = 1) as num_forced,
        sum(a_num_tokens) as a_tokens,
        sum(a_cut) as a_cut,
        sum(b_num_tokens) as b_tokens,
        sum(b_cut) as b_cut
    from pairs
    group by split, is_next
),

reasons as (
    select
        split,
        unnest([
            'instances', 'instances', 'instances',
            'pass_tokens', 'pass_tokens', 'pass_tokens', 'pass_tokens'
        ]) as section,
        unnest([
            'all', 'forced_random', if(is_next, 'next', 'random'),
            'in_instances', 'cut',
            if(is_next, 'in_instances', 'borrowed'), if(is_next, 'cut', 'borrowed_cut')
        ]) as reason,
        unnest([num_pairs, num_forced, num_pairs, a_tokens, a_cut, b_tokens, b_cut]) as recount
    from counts
),

recounted as (
    select
        split,
        section,
        reason,
        sum(recount) as recount
    from reasons
    group by all
),

stated as (
    select
        split,
        section,
        reason,
        count as stated
    from ledger
    where section in ('instances', 'pass_tokens') and reason <> 'own'
),

final as (
    select
        section,
        split,
        reason,
        coalesce(stated.stated, 0) as stated,
        coalesce(recounted.recount, 0)::bigint as recounted
    from stated
    full join recounted using (section, split, reason)
)

select
    section,
    split,
    reason,
    stated,
    recounted
from final
where stated <> recounted
order by section, split, reason;

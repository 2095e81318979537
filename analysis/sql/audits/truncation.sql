-- question: What became of the tokens of the documents that make instances?
-- grain: one row per split and fate in the ledger
-- passes: no verdict
-- kind: figures
-- `own` is every document's tokens once per pass, and the sum of `in_instances`, `cut`, `truncated`
-- and `dropped`. A random B is `borrowed`, and `borrowed_cut` what of it did not fit.
with own as (
    select
        split,
        count as num_own_tokens
    from ledger
    where section = 'pass_tokens' and reason = 'own'
),

final as (
    select
        ledger.split,
        ledger.reason as fate,
        ledger.count as num_tokens,
        ledger.count / own.num_own_tokens as share_of_own
    from ledger
    inner join own using (split)
    where ledger.section = 'pass_tokens' and own.num_own_tokens > 0
)

select
    split,
    fate,
    num_tokens,
    round(share_of_own, 6) as share_of_own
from final
order by split asc, num_tokens desc, fate asc;

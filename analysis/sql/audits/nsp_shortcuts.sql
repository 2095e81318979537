-- question: How well is the next-sentence label predicted without reading?
-- grain: one row per probe
-- passes: no verdict
-- kind: figures
-- needs: pairs
-- A probe sees one property of a pair and no text: `lengths` of A and B, in sixteenths of
-- max_seq_length, and whether the pair fills it; the `source` of both; the `overlap` of their sets
-- of token ids (Jaccard index, in hundredths); the `position` of A in its document (the tenth it
-- begins in, and how many sentences come after it, at most 10). `forced`, whether the chunk had one
-- sentence, is none that a model could see: it says how much of the label was never a coin.
-- A probe is a table of label counts by value of its property, from training pairs whose A is of a
-- document with an id below 80...; it is measured on the others, so no document is A in both. Each
-- value starts with one pair at the prior, the share of random pairs. Gains are over the prior
-- alone; their 95 % intervals, gain +- margin, take documents to be independent, not pairs. Of more
-- than 200,000 pairs about that many are sampled, by instance id.
with numbers as (
    select
        1.959964 as quantile,
        200000 as num_sampled,
        (
            select count from ledger
            where section = 'instances' and split = 'train' and reason = 'all'
        ) as num_pairs
),

sampled as (
    select
        pairs.a_document_id as document_id,
        pairs.b_document_id,
        pairs.source as a_source,
        pairs.next_sentence_label as label,
        pairs.num_chunk_sentences,
        pairs.a_num_tokens,
        pairs.b_num_tokens,
        pairs.a_first_sentence,
        pairs.a_num_sentences,
        len(list_intersect(pairs.a_ids, pairs.b_ids)) as num_shared,
        len(list_distinct(list_concat(pairs.a_ids, pairs.b_ids))) as num_ids,
        getvariable('max_seq_length') as most
    from pairs
    cross join numbers
    where
        pairs.split = 'train'
        and (
            numbers.num_pairs <= numbers.num_sampled
            or pairs.instance_id
            < printf('%08x', (4294967296 * numbers.num_sampled / numbers.num_pairs)::bigint)
        )
),

described as (
    select
        sampled.*,
        b_documents.source as b_source,
        a_documents.num_sentences as num_document_sentences
    from sampled
    inner join documents as a_documents on sampled.document_id = a_documents.document_id
    inner join documents as b_documents on sampled.b_document_id = b_documents.document_id
),

properties as (
    select
        document_id,
        document_id < '8' as is_fitted,
        label,
        unnest(['forced', 'lengths', 'source', 'overlap', 'position']) as probe,
        unnest([
            [num_chunk_sentences = 1]::varchar,
            [
                a_num_tokens * 16 // most,
                b_num_tokens * 16 // most,
                (a_num_tokens + b_num_tokens + 3 = most)::bigint
            ]::varchar,
            [a_source::varchar, b_source]::varchar,
            [num_shared * 100 // nullif(num_ids, 0)]::varchar,
            [
                a_first_sentence * 10 // num_document_sentences,
                least(num_document_sentences - a_first_sentence - a_num_sentences, 10)
            ]::varchar
        ]) as property
    from described
),

shares as (
    select (count(*) filter (where label = 1) + 0.5) / (count(*) + 1) as random_share
    from described
    where document_id < '8'
),

fitted as (
    select
        probe,
        property,
        count(*) filter (where label = 1) as num_random,
        count(*) as num_pairs
    from properties
    where is_fitted
    group by probe, property
),

predicted as (
    select
        properties.probe,
        properties.document_id,
        properties.label,
        shares.random_share,
        (coalesce(fitted.num_random, 0) + shares.random_share)
        / (coalesce(fitted.num_pairs, 0) + 1) as probability
    from properties
    cross join shares
    left join fitted using (probe, property)
    where not properties.is_fitted
),

scored as (
    select
        probe,
        document_id,
        ((probability > 0.5) = (label = 1))::int as correct,
        ((random_share > 0.5) = (label = 1))::int as prior_correct,
        -ln(if(label = 1, probability, 1 - probability)) as loss,
        -ln(if(label = 1, random_share, 1 - random_share)) as prior_loss
    from predicted
),

by_document as (
    select
        probe,
        document_id,
        count(*) as num_pairs,
        sum(correct) as correct,
        sum(prior_correct) as prior_correct,
        sum(loss) as loss,
        sum(prior_loss) as prior_loss
    from scored
    group by probe, document_id
),

sums as (
    select
        probe,
        sum(num_pairs) as num_pairs,
        sum(correct) / sum(num_pairs) as accuracy,
        sum(prior_correct) / sum(num_pairs) as prior_accuracy,
        sum(loss) / sum(num_pairs) as loss,
        sum(prior_loss) / sum(num_pairs) as prior_loss
    from by_document
    group by probe
),

errors as (
    select
        by_document.probe,
        sqrt(sum(power(
            by_document.correct - by_document.prior_correct
            - by_document.num_pairs * (sums.accuracy - sums.prior_accuracy),
            2
        ))) as accuracy_error,
        sqrt(sum(power(
            by_document.prior_loss - by_document.loss
            - by_document.num_pairs * (sums.prior_loss - sums.loss),
            2
        ))) as loss_error
    from by_document
    inner join sums using (probe)
    group by by_document.probe
),

final as (
    select
        sums.probe,
        sums.num_pairs::bigint as num_pairs,
        sums.accuracy,
        sums.accuracy - sums.prior_accuracy as accuracy_gain,
        numbers.quantile * errors.accuracy_error / sums.num_pairs as accuracy_margin,
        sums.loss,
        sums.prior_loss - sums.loss as loss_gain,
        numbers.quantile * errors.loss_error / sums.num_pairs as loss_margin
    from sums
    inner join errors using (probe)
    cross join numbers
)

select
    probe,
    num_pairs,
    round(accuracy, 6) as accuracy,
    round(accuracy_gain, 6) as accuracy_gain,
    round(accuracy_margin, 6) as accuracy_margin,
    round(loss, 6) as loss,
    round(loss_gain, 6) as loss_gain,
    round(loss_margin, 6) as loss_margin
from final
order by probe;

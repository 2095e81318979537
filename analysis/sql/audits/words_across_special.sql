-- question: Is the word before a [SEP] selected without regard to the pieces after it?
-- grain: one row per split
-- passes: the last word of A and the first of B are selected together as often as any two words
-- failure: words joined across a [SEP], as the original's code does.
-- kind: sums
-- needs: variants, pairs, words
-- Only where B begins inside a word, as its front was cut: the original's code joins those pieces
-- to the last word of A. Exact: words of one length in an instance are exchangeable, so given that
-- k of g words of a length are selected, each choice of k is alike. Two words of one length are
-- both selected with probability k (k - 1) / g / (g - 1), and words of two lengths with
-- (k1 / g1) (k2 / g2): independent coins over instances and
-- variants.
with overlays as (
    select
        variants.split,
        variants.positions,
        variants.word_lengths,
        variants.segment_b_start - 1 as a_end,
        variants.segment_b_start as b_begin,
        variants.word_lengths[variants.segment_b_start - 1] as a_length,
        variants.word_lengths[variants.segment_b_start + 1] as b_length
    from variants
    inner join vocab on variants.input_ids[variants.segment_b_start + 1]::integer = vocab.token_id
    where vocab.is_continuation
),

counts as (
    select
        split,
        a_length = b_length as is_same_length,
        list_contains(positions, a_end - 1) and list_contains(positions, b_begin) as are_both,
        len(list_filter(word_lengths, lambda w: w = a_length)) / a_length as a_words,
        len(list_filter(word_lengths, lambda w: w = b_length)) / b_length as b_words,
        len(list_filter(positions, lambda p: word_lengths[p + 1] = a_length))
        / a_length as a_chosen,
        len(list_filter(positions, lambda p: word_lengths[p + 1] = b_length))
        / b_length as b_chosen
    from overlays
),

chances as (
    select
        split,
        are_both,
        case
            when is_same_length
                then a_chosen * (a_chosen - 1) / (a_words * (a_words - 1))
            else a_chosen * b_chosen / (a_words * b_words)
        end as probability
    from counts
),

final as (
    select
        split,
        count(*) filter (where are_both) as observed,
        count(*) as trials,
        sum(probability) as expected,
        sum(probability * (1 - probability)) as variance
    from chances
    group by split
)

select
    split,
    observed,
    trials,
    expected,
    variance
from final
order by split;

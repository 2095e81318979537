-- question: Does a variant of whole words select no more than asked, and less only where none fits?
-- grain: one row per split, shape and number of selected positions that is wrong
-- passes: there is none
-- failure: another probability or cap, or words lost from overlays.
-- kind: offences
-- needs: variants, words
-- Words are tried in random order and one that overshoots the asked number is skipped. So where
-- fewer are selected, every word that is not has more pieces than were left. What fits is counted
-- in pieces: those of words short enough, less the selected ones among them.
with overlays as (
    select
        split,
        instance,
        variant,
        num_tokens,
        num_maskable,
        num_selected,
        positions,
        word_lengths,
        least(num_maskable, getvariable('max_predictions'), fewest_asked) as least_right,
        least(num_maskable, getvariable('max_predictions'), most_asked) as most_right
    from variants
),

doubtful as (
    select
        *,
        len(list_filter(word_lengths, lambda w: w between 1 and least_right - num_selected))
        - len(
            list_filter(
                positions,
                lambda p: word_lengths[p + 1] between 1 and least_right - num_selected
            )
        ) as num_fitting
    from overlays
    where num_selected not between least_right and most_right
),

final as (
    select
        split,
        num_tokens,
        num_maskable,
        num_selected,
        least_right,
        most_right,
        num_fitting,
        count(*) as num_overlays,
        min(instance) as first_instance
    from doubtful
    where num_selected > most_right or num_fitting > 0
    group by all
)

select
    split,
    num_tokens,
    num_maskable,
    num_selected,
    least_right,
    most_right,
    num_fitting,
    num_overlays,
    first_instance
from final
order by split, num_tokens, num_maskable, num_selected, num_fitting;

//! What a stream's top tells: what landed, and whether Redis lost something that it had accepted.

use crate::kernel::occurrence::EntryId;

use super::answer::Top;

/// What we know that a stream accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// The last entry that was answered, or that the log remembers.
    pub(super) last: Option<EntryId>,
    /// How many entries had been added in the stream's whole life then.
    pub(super) added: u64,
}

/// What became of what we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// All of it was accepted and is remembered.
    Whole,
    /// Everything behind `survived` is gone (`None`: anything may be).
    Lost {
        /// The last entry that is surely accounted for.
        survived: Option<EntryId>,
    },
}

/// Compares what we know with what the stream says; `None`: there is no such key.
///
/// The last id alone does not do: after DEL and a re-creation by a consumer it soon looks the same, and only the count
/// of entries ever added tells.
pub(super) fn compare(known: Known, top: Option<Top>) -> Sight {
    let Some(last) = known.last else { return Sight::Whole };
    let Some(top) = top else { return Sight::Lost { survived: None } };
    if top.added >= known.added && top.last >= last {
        return Sight::Whole;
    }
    // A roll-back within a generation keeps the head of the stream: then at most one entry a missing counter is
    // missing. Fewer than that were added: the head is gone too.
    let same_generation = top.last.generation == last.generation && top.last.counter < last.counter;
    let head_stands = same_generation && top.added.saturating_add(last.counter - top.last.counter) >= known.added;
    Sight::Lost { survived: head_stands.then_some(top.last) }
}

/// Whether the top itself says which of our entries landed: those with a counter up to the top's.
///
/// It does unless something was lost, or somebody wrote ids of another generation on top.
pub(super) fn top_tells(sight: Sight, top: Option<Top>, generation: u64) -> Option<u64> {
    match (sight, top) {
        (Sight::Whole, Some(top)) if top.last.generation == generation => Some(top.last.counter),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(generation: u64, counter: u64) -> EntryId {
        EntryId { generation, counter }
    }

    fn top(generation: u64, counter: u64, added: u64) -> Option<Top> {
        Some(Top { last: at(generation, counter), added, length: 0, groups: 0 })
    }

    #[test]
    fn what_was_never_written_cannot_be_lost() {
        assert_eq!(compare(Known::default(), None), Sight::Whole);
        assert_eq!(compare(Known { last: None, added: 1 }, top(0, 0, 0)), Sight::Whole);
    }

    #[test]
    fn a_stream_that_went_on_is_whole_whatever_was_trimmed() {
        let known = Known { last: Some(at(4, 10)), added: 25 };
        assert_eq!(compare(known, top(4, 10, 25)), Sight::Whole);
        assert_eq!(compare(known, top(4, 12, 27)), Sight::Whole);
        assert_eq!(compare(known, top(5, 0, 25)), Sight::Whole);
    }

    #[test]
    fn a_roll_back_keeps_the_head() {
        let known = Known { last: Some(at(4, 10)), added: 25 };
        assert_eq!(compare(known, top(4, 7, 22)), Sight::Lost { survived: Some(at(4, 7)) });
        // counters were left out behind a fence: fewer entries than counters are missing
        assert_eq!(compare(known, top(4, 7, 24)), Sight::Lost { survived: Some(at(4, 7)) });
    }

    #[test]
    fn a_key_that_was_deleted_and_made_again_lost_everything() {
        let known = Known { last: Some(at(4, 10)), added: 25 };
        assert_eq!(compare(known, None), Sight::Lost { survived: None });
        assert_eq!(compare(known, top(0, 0, 0)), Sight::Lost { survived: None });
        assert_eq!(compare(known, top(4, 10, 3)), Sight::Lost { survived: None });
        assert_eq!(compare(known, top(4, 14, 4)), Sight::Lost { survived: None });
        assert_eq!(compare(known, top(4, 9, 2)), Sight::Lost { survived: None });
        assert_eq!(compare(known, top(3, 90, 15)), Sight::Lost { survived: None });
    }

    #[test]
    fn only_our_own_generation_on_top_tells_what_landed() {
        assert_eq!(top_tells(Sight::Whole, top(4, 7, 9), 4), Some(7));
        assert_eq!(top_tells(Sight::Whole, top(5, 7, 9), 4), None);
        assert_eq!(top_tells(Sight::Whole, None, 4), None);
        assert_eq!(top_tells(Sight::Lost { survived: None }, top(4, 7, 9), 4), None);
    }
}

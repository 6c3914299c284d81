//! From the last part to the event: an upload's completion, and its end without one.

mod decide;
mod drive;
mod owned;
mod show;

pub use decide::{Asked, Begun, Did, Flaw, Known, Next, Row, Seen, decide};
pub use drive::Ran;
pub(crate) use owned::Owned;

impl Flaw {
    const ALL: [Self; 5] = [Self::PartsLost, Self::Refused, Self::Misfit, Self::Late, Self::RowGone];

    /// The word that a stored reason begins with.
    pub const fn word(self) -> &'static str {
        match self {
            Self::PartsLost => "parts_lost",
            Self::Refused => "refused",
            Self::Misfit => "misfit",
            Self::Late => "late",
            Self::RowGone => "row_gone",
        }
    }

    /// A reason to store: the word, a colon, and what happened.
    pub(crate) fn reason(self, detail: &str) -> String {
        format!("{}: {detail}", self.word())
    }

    /// The flaw that a stored reason was made for, by its word; none for a reason of another kind.
    pub(crate) fn of(reason: &str) -> Option<Self> {
        let (word, _) = reason.split_once(':')?;
        Self::ALL.into_iter().find(|flaw| flaw.word() == word)
    }
}

/// Whether an upload failed because its object store was of no use until the deadline: it has all of its parts.
pub(crate) fn is_late(reason: &str) -> bool {
    Flaw::of(reason) == Some(Flaw::Late)
}

/// Whether an upload that failed for this reason has to begin anew: the object store does not have its parts, or not
/// those that were recorded.
pub(crate) fn parts_are_lost(reason: &str) -> bool {
    matches!(Flaw::of(reason), Some(Flaw::PartsLost | Flaw::Refused | Flaw::Misfit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_reason_is_known_by_its_word_alone() {
        for flaw in Flaw::ALL {
            for detail in ["", "late: it was", "parts_lost", "any words"] {
                assert_eq!(Flaw::of(&flaw.reason(detail)), Some(flaw), "{detail}");
            }
        }
        for other in ["", "late", "the parts are lost: late", "lately: no", "chunk 3, attempt 5: refused: no"]
        {
            assert_eq!(Flaw::of(other), None, "{other}");
        }
    }
}

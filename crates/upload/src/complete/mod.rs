//! From the last part to the event: an upload's completion, and its end without one.

mod decide;
mod drive;
mod owned;
mod show;

pub use decide::{Asked, Begun, Did, Flaw, Known, Next, Row, Seen, decide};
pub use drive::Ran;
pub(crate) use owned::Owned;

impl Flaw {
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

    /// A reason to store.
    pub(crate) fn reason(self, detail: &str) -> String {
        format!("{}: {detail}", self.word())
    }
}

/// Whether an upload failed because its object store was of no use until the deadline: it has all of its parts.
pub(crate) fn is_late(reason: &str) -> bool {
    reason.split_once(':').is_some_and(|(word, _)| word == Flaw::Late.word())
}

/// Whether an upload that failed for this reason has to begin anew: the object store does not have its parts, or not
/// those that were recorded.
pub(crate) fn parts_are_lost(reason: &str) -> bool {
    let flaws = [Flaw::PartsLost, Flaw::Refused, Flaw::Misfit];
    flaws.iter().any(|flaw| reason.split_once(':').is_some_and(|(word, _)| word == flaw.word()))
}

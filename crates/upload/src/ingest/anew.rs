//! Chunks of which nothing was kept.

use std::fmt::{self, Display};

use super::{GIVEN_UP, Took};

/// Why a chunk is to be sent anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anew {
    /// Its sender, or the node, stood still for so long that the room for its bytes was given to others.
    Lapsed,
    /// The store lost its bytes, or forgot the upload again and again.
    Lost,
    /// There is no room for the rest of it.
    Crowded,
}

impl Display for Anew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lapsed => {
                "it stood still for so long that the room for its bytes was given up, and what had come was removed"
            }
            Self::Lost => "the store lost what had come of it",
            Self::Crowded => {
                "there is no room for the rest of it beside the bytes of others, and what had come was removed"
            }
        })
    }
}

impl Anew {
    /// To be answered.
    pub(super) const fn took(self) -> Took {
        Took::Anew { why: self, retry_after: GIVEN_UP }
    }
}

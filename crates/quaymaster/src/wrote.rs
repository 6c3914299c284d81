//! Whether a call of several steps has changed something before it failed. Its error must say so.

use std::cell::Cell;

use crate::outage::is_outage;
use crate::{Code, Result};

/// What the scripts of one call have done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrote {
    /// None that writes was answered.
    Nothing,
    /// The last one that was asked writes and was answered. Where it said no, it wrote nothing.
    Last,
    /// One that writes was answered, and another was asked after it.
    Before,
}

impl Wrote {
    /// Whether a call that ends with an error of this code may have changed something in an earlier step.
    pub fn doubts(self, code: Code) -> bool {
        match self {
            Wrote::Nothing => false,
            // A script's own refusal is no outage: such an error came after it.
            Wrote::Last => is_outage(code),
            Wrote::Before => true,
        }
    }
}

tokio::task_local! {
    static WROTE: Cell<Wrote>;
}

/// A script is asked.
pub(crate) fn asked() {
    let _ = WROTE.try_with(|wrote| {
        if wrote.get() == Wrote::Last {
            wrote.set(Wrote::Before);
        }
    });
}

/// A script that writes was answered.
pub(crate) fn answered() {
    let _ = WROTE.try_with(|wrote| wrote.set(wrote.get().max(Wrote::Last)));
}

/// Runs a call to its end and says what its scripts did. Tasks that the call spawns are not seen.
pub async fn watched<T>(call: impl Future<Output = T>) -> (T, Wrote) {
    let watching = async {
        let answer = call.await;
        (answer, WROTE.with(Cell::get))
    };
    let (answer, wrote) = WROTE.scope(Cell::new(Wrote::Nothing), watching).await;
    // For the call around this one.
    if wrote > Wrote::Nothing {
        asked();
        answered();
    }
    if wrote == Wrote::Before {
        asked();
    }
    (answer, wrote)
}

/// A call of several steps: an error after a step that wrote says that the call may have run.
pub(crate) fn in_steps<T>(call: impl Future<Output = Result<T>>) -> impl Future<Output = Result<T>> {
    // Boxed before it is watched: every layer around a future holds it once more.
    let watching = watched(Box::pin(call));
    async {
        match watching.await {
            (Err(error), wrote) if wrote.doubts(error.code) => Err(error.ran(true)),
            (answer, _) => answer,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::Error;

    fn refused(code: Code) -> Result<()> {
        Err(Error::new("test", code, "no"))
    }

    #[tokio::test]
    async fn an_error_after_a_step_that_wrote_says_so() {
        let one_step = |code| async move {
            asked();
            answered();
            refused(code)
        };
        let no_step = async { refused(Code::StoreRefused) };
        assert!(!in_steps(no_step).await.unwrap_err().may_have_run);
        assert!(!in_steps(one_step(Code::QueueFull)).await.unwrap_err().may_have_run, "it said no itself");
        assert!(in_steps(one_step(Code::StoreRefused)).await.unwrap_err().may_have_run);
        let two_steps = async {
            one_step(Code::QueueFull).await.unwrap_err();
            one_step(Code::QueueFull).await
        };
        assert!(in_steps(two_steps).await.unwrap_err().may_have_run);
    }

    #[tokio::test]
    async fn a_call_within_a_call_is_seen_from_outside() {
        let inner = || {
            in_steps(async {
                asked();
                answered();
                Ok(())
            })
        };
        assert_eq!(watched(inner()).await.1, Wrote::Last);
        let twice = async {
            inner().await?;
            inner().await
        };
        assert_eq!(watched(twice).await.1, Wrote::Before);
        // Outside of any call nobody watches.
        answered();
    }
}

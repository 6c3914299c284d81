//! `Retrying`: repeats a call of a long-running program while its store is away.
//!
//! A call has a deadline, and within it the store's client connects and asks again by itself. A program that has nobody
//! waiting for it, such as a watcher or an importer, goes on longer: it waits and asks again.

use std::time::Duration;

use quaymaster_store::Repeat;
use quaymaster_store::backoff::Backoff;

use crate::{Error, Result, Retry};

/// The Rust of its page compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/stores.md")]
struct Page;

/// How a program repeats its calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retrying {
    /// How long to wait before each repetition: 1 s, 2 s, 4 s … 30 s unless told, and up to a quarter more.
    pub backoff: Backoff,
    /// How often a call is repeated: three times unless told.
    pub max_retries: u32,
    /// Whether a call that may have run is repeated, too: `Safe` for one that reads or carries a `request_id`.
    pub repeat: Repeat,
}

impl Default for Retrying {
    fn default() -> Self {
        Self { backoff: Backoff::default(), max_retries: 3, repeat: Repeat::Never }
    }
}

impl Retrying {
    /// The answer of `operation`, or its last error. Repeats what trying again can help; `name` is for the log.
    pub async fn run<T, F, Fut>(&self, name: &str, mut operation: F) -> Result<T>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let error = match operation().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if attempt > self.max_retries || !self.helps(&error) {
                return Err(error);
            }
            let wait = self.backoff.delay(attempt).max(error.retry_after.unwrap_or(Duration::ZERO));
            tracing::warn!(name, attempt, code = %error.code, detail = error.detail, ?wait, "will try again");
            tokio::time::sleep(wait).await;
        }
    }

    fn helps(&self, error: &Error) -> bool {
        error.code.retry() != Retry::Useless && (self.repeat == Repeat::Safe || !error.may_have_run)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::future::ready;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;
    use crate::Code;

    fn quick(max_retries: u32, repeat: Repeat) -> Retrying {
        let backoff = Backoff { base: Duration::from_millis(1), max: Duration::from_millis(1), jitter: 0.0 };
        Retrying { backoff, max_retries, repeat }
    }

    /// How often an operation is asked that fails so often, and what comes of it.
    async fn asked(how: Retrying, fails: u32, code: Code) -> (u32, Result<()>) {
        let asked = AtomicU32::new(0);
        let answer = how.run("op", || {
            let before = asked.fetch_add(1, SeqCst);
            ready(if before < fails { Err(Error::new("op", code, "away")) } else { Ok(()) })
        });
        let answer = answer.await;
        (asked.load(SeqCst), answer)
    }

    #[tokio::test]
    async fn what_did_not_run_is_repeated_as_often_as_told() {
        assert_eq!(Retrying::default().backoff, Backoff::default(), "the documented 1 s to 30 s");
        let (count, answer) = asked(quick(3, Repeat::Never), 3, Code::StoreRefused).await;
        assert_eq!((count, answer.is_ok()), (4, true));
        let (count, answer) = asked(quick(3, Repeat::Never), 9, Code::StoreRefused).await;
        assert_eq!((count, answer.unwrap_err().code), (4, Code::StoreRefused));
        assert_eq!(asked(quick(0, Repeat::Never), 9, Code::StoreRefused).await.0, 1);
    }

    #[tokio::test]
    async fn what_may_have_run_is_repeated_only_where_that_is_safe_and_what_is_wrong_never() {
        assert_eq!(asked(quick(3, Repeat::Never), 9, Code::StoreLost).await.0, 1);
        assert_eq!(asked(quick(3, Repeat::Safe), 9, Code::StoreLost).await.0, 4);
        assert_eq!(asked(quick(3, Repeat::Safe), 9, Code::RequestInvalid).await.0, 1);
    }
}

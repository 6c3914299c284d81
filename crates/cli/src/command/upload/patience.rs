//! What fails is tried again, for a while.

use std::time::{Duration, Instant};

use quaymaster::{Code, Error};

use super::way::{Tried, Trying};
use crate::output;

/// What fails is tried again for so long …
const PATIENCE: Duration = Duration::from_secs(60);
/// … and at least so often: one attempt on a slow line may take longer than that.
const ATTEMPTS: u32 = 5;
/// A store that only says when to come back may do so for longer.
const BUSY_PATIENCE: Duration = Duration::from_secs(15 * 60);
/// Between two attempts, doubled up to the longest.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Attempts before it is said that something does not work.
const TOLD_AFTER: u32 = 3;

/// Tries until it works, will not, or has not for too long.
pub(super) async fn patiently<T, F: Future<Output = Tried<T>>>(call: impl Fn() -> F) -> Result<T, Error> {
    let (mut failing, mut attempts, mut pause) = (None, 0, FIRST_PAUSE);
    loop {
        let (wait, mut error) = match call().await {
            Ok(done) => return Ok(done),
            Err(Trying::Never(error)) => return Err(error),
            Err(Trying::Later(wait, error)) => (wait, error),
        };
        let patience = if error.code == Code::UploadBusy { BUSY_PATIENCE } else { PATIENCE };
        let rest = wait.unwrap_or(pause);
        attempts += 1;
        let since = *failing.get_or_insert_with(Instant::now);
        // A proxy may ask for hours: nobody should sit before that.
        if rest > patience {
            error.detail = format!("{}; it asks to come back in {} s", error.detail, rest.as_secs());
            return Err(error);
        }
        if since.elapsed() + rest > patience && attempts >= ATTEMPTS {
            return Err(error);
        }
        // Nobody should sit before a command that says nothing; a store that is only busy is part of the plan.
        if attempts == TOLD_AFTER && error.code != Code::UploadBusy {
            output::error(&format!("{}; trying on for {} s", error.detail, patience.as_secs()));
        }
        tracing::debug!(%error, ?rest, "will try again");
        tokio::time::sleep(rest).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

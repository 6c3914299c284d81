//! A rehearsal aid: stops a gateway in the middle of an operation, so that it can be paused or killed exactly there.
//!
//! In the folder `PSP_GATEWAY_HOLD` names, a file `create.writing` (or any `<operation>.<point>`) stops the first
//! gateway that comes to that point. It renames the file to `create.writing.<its process id>` and goes on when that
//! is gone. Without the variable nothing is looked at.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where an operation can be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// The guard is entered or the lock held; SQL has not been touched.
    Entered,
    /// Inside the SQL transaction, all but committed.
    Writing,
    /// The SQL transaction is committed; the guard does not know yet.
    Committed,
}

impl Point {
    fn name(self) -> &'static str {
        match self {
            Point::Entered => "entered",
            Point::Writing => "writing",
            Point::Committed => "committed",
        }
    }
}

/// Between two looks at the file.
const GLANCE: Duration = Duration::from_millis(10);

/// The folder to look into, if any.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hold(Option<Arc<PathBuf>>);

impl Hold {
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Self(folder.map(Arc::new))
    }

    /// Stops here when a file says so.
    pub(crate) async fn at(&self, operation: &str, point: Point) {
        let Some(folder) = &self.0 else { return };
        let wanted = folder.join(format!("{operation}.{}", point.name()));
        let held = folder.join(format!("{operation}.{}.{}", point.name(), std::process::id()));
        // Renaming is atomic: one of any number of gateways gets the file.
        if tokio::fs::rename(&wanted, &held).await.is_err() {
            return;
        }
        tracing::warn!(operation, point = point.name(), "held for a rehearsal");
        while tokio::fs::try_exists(&held).await.unwrap_or(false) {
            tokio::time::sleep(GLANCE).await;
        }
    }
}

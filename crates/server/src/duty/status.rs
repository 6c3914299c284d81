//! Publishes the status of a system.

use std::time::Duration;

use quaymaster::Result;
use quaymaster::event::{Event, Told};

/// Whoever lost the turn asks again a little after the interval's end, each node a little later than another.
const SPREAD_MS: u64 = 20;

/// One status, or how long to wait for the next turn.
pub(super) async fn tell(event: &Event) -> Result<Duration> {
    let every = event.spec().status.as_ref().map_or(Duration::MAX, |status| status.every);
    Ok(match event.tell_status().await? {
        Told::Published { .. } => every,
        Told::NotYet { left } => left + Duration::from_millis(1 + fastrand::u64(..SPREAD_MS)),
    })
}

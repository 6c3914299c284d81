//! Which cameras have sent something lately.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Folders that are no cameras must not fill the memory.
const MOST: usize = 10_000;

/// Shared by the watcher, who sees images, and whoever reports. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Online {
    last: Arc<Mutex<HashMap<String, SystemTime>>>,
    lately: Duration,
}

impl Online {
    /// A camera is online for so long after its last image.
    pub(crate) fn new(lately: Duration) -> Self {
        Self { last: Arc::default(), lately }
    }

    /// An image of this camera, changed at `at`.
    pub(crate) fn saw(&self, camera: &str, at: SystemTime) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = last.get_mut(camera) {
            *known = at.max(*known);
        } else if last.len() < MOST {
            last.insert(camera.to_owned(), at);
        }
    }

    /// How many are online.
    pub(crate) fn count(&self, now: SystemTime) -> usize {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // A camera whose clock is ahead is online too.
        last.values().filter(|at| now.duration_since(**at).map_or(true, |ago| ago <= self.lately)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_camera_is_online_until_it_was_silent_too_long() {
        let (online, now) = (Online::new(Duration::from_secs(60)), SystemTime::now());
        online.saw("a", now - Duration::from_secs(90));
        online.saw("b", now - Duration::from_secs(30));
        online.saw("b", now - Duration::from_secs(300));
        online.saw("c", now + Duration::from_secs(5));
        assert_eq!(online.count(now), 2);
        online.saw("a", now);
        assert_eq!(online.count(now), 3);
        assert_eq!(online.count(now + Duration::from_secs(62)), 1);
    }
}

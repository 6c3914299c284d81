//! Files that were noticed and are not known to be whole yet.
//!
//! A file is whole when its writer closed it, when it was renamed into place, or when its size and time of change
//! stayed the same for a while: what a file system that tells nothing, or a missed event, leaves us. Where events told
//! of the writing, one will tell of its end, so that a writer who pauses is waited for much longer.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::stamp::Stamp;

/// How many times longer a file is waited for whose writer was heard and not yet seen closing it.
const HEARD: u32 = 10;

/// What was heard of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// It was made or written to, and may still be.
    Touched,
    /// Its writer closed it, or it was renamed into place.
    Finished,
    /// It was there when the folder was walked through.
    Found,
}

#[derive(Debug)]
struct Candidate {
    /// As last seen; `None` before the first look.
    stamp: Option<Stamp>,
    /// Since when it has been like that.
    since: Instant,
    finished: bool,
    heard: bool,
    order: u64,
}

/// A bounded set of candidates.
#[derive(Debug)]
pub(crate) struct Pending {
    files: HashMap<PathBuf, Candidate>,
    settle: Duration,
    room: usize,
    noted: u64,
}

impl Pending {
    pub(crate) fn new(settle: Duration, room: usize) -> Self {
        Self { files: HashMap::new(), settle, room, noted: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there is room for one more.
    pub(crate) fn has_room(&self) -> bool {
        self.files.len() < self.room
    }

    /// Notes what was heard; false when there is no room: the file is found again by a later walk.
    pub(crate) fn note(&mut self, path: &Path, sign: Sign, now: Instant) -> bool {
        if let Some(known) = self.files.get_mut(path) {
            match sign {
                Sign::Touched => {
                    (known.stamp, known.since) = (None, now);
                    (known.finished, known.heard) = (false, true);
                }
                Sign::Finished => known.finished = true,
                Sign::Found => {}
            }
            return true;
        }
        if !self.has_room() {
            return false;
        }
        self.noted += 1;
        let (finished, heard) = (sign == Sign::Finished, sign == Sign::Touched);
        let candidate = Candidate { stamp: None, since: now, finished, heard, order: self.noted };
        self.files.insert(path.to_owned(), candidate);
        true
    }

    /// Takes out up to `most` files that are whole, in the order they were noticed. `look` reads a stamp: `None`
    /// lets go of the file. `busy` names files that are being handled in an earlier version and must wait.
    pub(crate) fn due(
        &mut self,
        now: Instant,
        most: usize,
        busy: impl Fn(&Path) -> bool,
        mut look: impl FnMut(&Path) -> Option<Stamp>,
    ) -> Vec<(PathBuf, Stamp)> {
        let mut whole: Vec<(u64, PathBuf, Stamp)> = Vec::new();
        let mut gone: Vec<PathBuf> = Vec::new();
        for (path, file) in &mut self.files {
            let settle = if file.heard { self.settle * HEARD } else { self.settle };
            let waited = now.saturating_duration_since(file.since) >= settle;
            if busy(path) || (!file.finished && file.stamp.is_some() && !waited) {
                continue;
            }
            match look(path) {
                None => gone.push(path.clone()),
                // An empty file is one whose bytes are still to come.
                Some(stamp)
                    if stamp.bytes > 0 && (file.finished || (waited && file.stamp == Some(stamp))) =>
                {
                    whole.push((file.order, path.clone(), stamp));
                }
                Some(stamp) => (file.stamp, file.since, file.finished) = (Some(stamp), now, false),
            }
        }
        whole.sort_unstable_by_key(|(order, ..)| *order);
        whole.truncate(most);
        for path in gone.iter().chain(whole.iter().map(|(_, path, _)| path)) {
            self.files.remove(path);
        }
        whole.into_iter().map(|(_, path, stamp)| (path, stamp)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_secs(2);
    const SECOND: Duration = Duration::from_secs(1);

    fn stamp(bytes: u64) -> Stamp {
        Stamp { bytes, modified_ns: 0 }
    }

    fn names(due: Vec<(PathBuf, Stamp)>) -> Vec<String> {
        due.into_iter().map(|(path, _)| path.display().to_string()).collect()
    }

    /// Looks at all files, which have this many bytes.
    fn look(pending: &mut Pending, now: Instant, bytes: u64) -> Vec<String> {
        names(pending.due(now, usize::MAX, |_| false, |_| Some(stamp(bytes))))
    }

    #[test]
    fn a_file_whose_writer_closed_it_is_whole_at_once() {
        let (mut pending, now) = (Pending::new(SETTLE, 10), Instant::now());
        assert!(pending.note(Path::new("a"), Sign::Touched, now));
        assert!(pending.note(Path::new("a"), Sign::Finished, now));
        assert_eq!(look(&mut pending, now, 5), ["a"]);
        assert_eq!(pending.len(), 0);
    }

    #[test]
    fn a_file_that_grows_is_waited_for() {
        let (mut pending, began) = (Pending::new(SETTLE, 10), Instant::now());
        assert!(pending.note(Path::new("a"), Sign::Found, began));
        for second in 0..10 {
            assert_eq!(
                look(&mut pending, began + SECOND * second, u64::from(second) / 2 + 1),
                [""; 0],
                "{second}"
            );
        }
        assert_eq!(look(&mut pending, began + SECOND * 10, 5), ["a"]);
    }

    #[test]
    fn a_writer_that_was_heard_may_pause() {
        let (mut pending, began) = (Pending::new(SETTLE, 10), Instant::now());
        assert!(pending.note(Path::new("a"), Sign::Found, began));
        assert!(pending.note(Path::new("a"), Sign::Touched, began));
        assert_eq!(look(&mut pending, began, 5), [""; 0]);
        assert_eq!(look(&mut pending, began + SECOND * 19, 5), [""; 0]);
        assert_eq!(
            look(&mut pending, began + SECOND * 20, 5),
            ["a"],
            "the end of the writing may have been missed"
        );
    }

    #[test]
    fn a_file_that_is_opened_again_is_waited_for_again() {
        let (mut pending, now) = (Pending::new(SETTLE, 10), Instant::now());
        assert!(pending.note(Path::new("a"), Sign::Finished, now));
        assert!(pending.note(Path::new("a"), Sign::Touched, now));
        assert_eq!(look(&mut pending, now, 5), [""; 0]);
        assert!(pending.note(Path::new("a"), Sign::Finished, now));
        assert_eq!(look(&mut pending, now, 6), ["a"]);
    }

    #[test]
    fn an_empty_file_is_not_whole_however_long_it_lies_there() {
        let (mut pending, began) = (Pending::new(SETTLE, 10), Instant::now());
        assert!(pending.note(Path::new("a"), Sign::Finished, began));
        for second in [0, 2, 4, 60] {
            assert_eq!(look(&mut pending, began + SECOND * second, 0), [""; 0]);
        }
        assert_eq!(look(&mut pending, began + SECOND * 62, 4), [""; 0]);
        assert_eq!(look(&mut pending, began + SECOND * 64, 4), ["a"]);
    }

    #[test]
    fn a_file_that_went_away_is_let_go_of() {
        let (mut pending, now) = (Pending::new(SETTLE, 10), Instant::now());
        assert!(pending.note(Path::new("a"), Sign::Finished, now));
        assert_eq!(names(pending.due(now, 9, |_| false, |_| None)), [""; 0]);
        assert_eq!(pending.len(), 0);
    }

    #[test]
    fn files_come_in_the_order_they_were_noticed_and_no_more_than_asked_for() {
        let (mut pending, now) = (Pending::new(SETTLE, 10), Instant::now());
        for name in ["c", "a", "d", "b"] {
            assert!(pending.note(Path::new(name), Sign::Finished, now));
        }
        let busy = |path: &Path| path == Path::new("a");
        assert_eq!(names(pending.due(now, 2, busy, |_| Some(stamp(1)))), ["c", "d"]);
        assert_eq!(look(&mut pending, now, 1), ["a", "b"]);
    }

    #[test]
    fn there_is_a_bound_and_it_is_told() {
        let (mut pending, now) = (Pending::new(SETTLE, 2), Instant::now());
        assert!(pending.note(Path::new("a"), Sign::Found, now));
        assert!(pending.note(Path::new("b"), Sign::Found, now));
        assert!(!pending.note(Path::new("c"), Sign::Found, now));
        assert!(pending.note(Path::new("a"), Sign::Finished, now), "a known file needs no room");
    }
}

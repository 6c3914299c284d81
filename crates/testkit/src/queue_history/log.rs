//! The lines of a worker; `bin/queue_worker` documents them.

use crate::crew;

crate::events! {
    Pushing "pushing" { time: i64, queue: String, jobs: String, delay: i64, id: String }
    Pushed "pushed" { time: i64, accepted: usize }
    Refused "refused" { time: i64, code: String }
    Duplicate "duplicate" { time: i64 }
    Got "got" { queue: String, job: String, attempt: u32, lease: String, from: i64, to: i64, ttl: i64 }
    Extending "extending" { time: i64, lease: String, ttl: i64 }
    Extended "extended" { time: i64, lease: String }
    Acking "acking" { time: i64, leases: String, then: String }
    Acked "acked" { time: i64, acked: usize, lost: usize }
    Nacking "nacking" { time: i64, lease: String, error: String }
    Releasing "releasing" { time: i64, lease: String }
    Released "released" { time: i64, lease: String }
    Retry "retry" { time: i64, lease: String, wait: i64 }
    Dead "dead" { time: i64, lease: String }
    Lost "lost" { time: i64, lease: String }
    Error "error" { code: String }
}

/// Everything one process told.
#[derive(Debug, Default, Clone)]
pub struct Log {
    /// Lane and event, in order within a lane.
    pub lines: Vec<(usize, Event)>,
    /// It was killed: its last words may be missing.
    pub killed: bool,
}

impl crew::Log for Log {
    fn note(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let lane = words.next().and_then(|lane| lane.parse().ok());
        let event = parse(&mut words);
        // Half a line may look whole; a whole one ends with its full stop.
        if words.next() == Some(".") {
            self.lines.extend(lane.zip(event));
        }
    }

    fn end_by_kill(&mut self) {
        self.killed = true;
    }
}

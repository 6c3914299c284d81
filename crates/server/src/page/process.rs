//! What every Prometheus client tells about its process, under the names that all of them use. Read from `/proc`; what
//! cannot be read is left out.

use std::fmt::Write as _;

use rustix::process::{Resource, getrlimit};

use crate::metrics::header;

/// Appends the families.
pub(super) fn write(out: &mut String) {
    let open = std::fs::read_dir("/proc/self/fd").map(|files| files.count() as u64).ok();
    one(out, "process_open_fds", "gauge", "Open file descriptors.", open);
    let most = getrlimit(Resource::Nofile).current;
    one(out, "process_max_fds", "gauge", "The most file descriptors that may be open.", most);
    let Some(stat) = std::fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(Stat::read) else {
        return;
    };
    let (tick, page) = (rustix::param::clock_ticks_per_second(), rustix::param::page_size() as u64);
    let seconds = |ticks: u64| ticks as f64 / tick as f64;
    let help = "User and system time spent.";
    one(out, "process_cpu_seconds_total", "counter", help, Some(seconds(stat.cpu_ticks)));
    one(out, "process_threads", "gauge", "Threads.", Some(stat.threads));
    let help = "Virtual memory.";
    one(out, "process_virtual_memory_bytes", "gauge", help, Some(stat.virtual_bytes));
    let help = "Resident memory.";
    one(out, "process_resident_memory_bytes", "gauge", help, Some(stat.resident_pages * page));
    let booted = std::fs::read_to_string("/proc/stat").ok();
    let booted = booted.as_deref().and_then(|text| {
        text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse::<u64>().ok()
    });
    let started = booted.map(|booted| booted as f64 + seconds(stat.started_ticks));
    let help = "When the process started, in seconds since the epoch.";
    one(out, "process_start_time_seconds", "gauge", help, started);
}

fn one(out: &mut String, name: &str, kind: &str, help: &str, value: Option<impl std::fmt::Display>) {
    if let Some(value) = value {
        header(out, name, kind, help);
        let _ = writeln!(out, "{name} {value}");
    }
}

/// What is told of `/proc/self/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    cpu_ticks: u64,
    threads: u64,
    started_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    /// The second field is the program's name in parentheses, which may have any character in it.
    fn read(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // The first of these is the third of the file.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            threads: field(20)?,
            started_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_is_read_behind_the_programs_name() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194560 11 12 13 14 150 50 3 4 20 0 9 0 7777 123456789 42 18446744073709551615 1";
        let wanted = Stat {
            cpu_ticks: 200,
            threads: 9,
            started_ticks: 7777,
            virtual_bytes: 123_456_789,
            resident_pages: 42,
        };
        assert_eq!(Stat::read(text), Some(wanted));
        assert_eq!(Stat::read("7 (a"), None);
    }
}

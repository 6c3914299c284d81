//! Processor time, which tells who the bottleneck was.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// Processor seconds of this process, all threads.
pub(crate) fn own() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Processor seconds of another process, from the kernel's hundredths; 0 once it is gone.
fn of(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The command's name may hold spaces and parentheses: count fields after the last one.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 100.0
}

/// Watches processes during a run.
#[derive(Debug)]
pub(crate) struct Watch {
    began: Instant,
    own: f64,
    others: Vec<(&'static str, u32, f64)>,
}

impl Watch {
    pub(crate) fn start(others: &[(&'static str, u32)]) -> Self {
        let others = others.iter().map(|(name, pid)| (*name, *pid, of(*pid))).collect();
        Self { began: Instant::now(), own: own(), others }
    }

    /// `name=percent` per process since the start; 100 % is one core.
    pub(crate) fn shares(&self) -> Vec<(&'static str, String)> {
        let seconds = self.began.elapsed().as_secs_f64();
        let share = |spent: f64| format!("{:.0}%", spent / seconds * 100.0);
        let mut shares = vec![("client_cpu", share(own() - self.own))];
        shares.extend(self.others.iter().map(|(name, pid, before)| (*name, share(of(*pid) - before))));
        shares
    }
}

//! Processor time, which tells who the bottleneck was.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use crate::sample::Sample;

/// Processor seconds of this process, all threads.
pub(crate) fn own() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Processor seconds of another process, from the kernel's hundredths; 0 once it is gone.
pub(crate) fn of(pid: u32) -> f64 {
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

    /// Notes on every process since the start: its share of a core, and processor time per call, which says
    /// the same on a busy machine as on a quiet one.
    pub(crate) fn note(&self, mut sample: Sample, own: Own) -> Sample {
        let seconds = self.began.elapsed().as_secs_f64();
        let mut spent: Vec<(&str, f64)> =
            self.others.iter().map(|(name, pid, before)| (*name, of(*pid) - before)).collect();
        if own == Own::Counts {
            spent.insert(0, ("client", self::own() - self.own));
        }
        for (name, cpu) in spent {
            let per_call = cpu * 1e6 / sample.n.max(1) as f64;
            sample = sample.note(&format!("{name}_cpu"), format_args!("{:.0}%", cpu / seconds * 100.0));
            sample = sample.note(&format!("{name}_us"), format_args!("{per_call:.1}"));
        }
        sample
    }
}

/// Whether this process is a contestant, or only started one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Own {
    /// It makes the calls.
    Counts,
    /// Another process makes them.
    Idle,
}

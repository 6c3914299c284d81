//! Requests that several processes record into one stats, and the separate count of them.
//!
//! A request follows from its process and number alone, so that whoever compares can count again what was recorded.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use http::Method;
use quaymaster::stats::{ERROR_ONE_IN, Report, Seen, UNMATCHED};

/// What the processes count into.
pub const SCHEMA: &str = r#"
[schema]
name = "traffic"
owner = "tests"
[stats.web]
key = "web:"
flush = "50ms"
heartbeat = "2s"
max_endpoints = 40
"#;

/// The processes' requests together.
pub const REQUESTS: u64 = 100_000;
/// How many processes share them.
pub const PROCESSES: u64 = 3;
/// Processes with this number or a greater one ask for paths that nobody else asks for.
pub const RAW: u64 = 100;
/// Such paths of one process.
pub const RAW_PATHS: u64 = 5000;

const ROUTES: [&str; 6] =
    ["/users/{id}", "/users", "/login", "/forum/questions/{id}", "/files/{*rest}", "/health"];

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The route it matched.
    pub route: Option<String>,
    /// Its method.
    pub method: Method,
    /// The response's status.
    pub status: u16,
    /// How long it took.
    pub us: u64,
}

impl Asked {
    /// As a recorder takes it.
    pub fn seen(&self) -> Seen<'_> {
        Seen {
            method: &self.method,
            route: self.route.as_deref(),
            status: self.status,
            elapsed: Duration::from_micros(self.us),
            accepted: self.status != 429,
        }
    }

    fn endpoint(&self) -> String {
        let Some(route) = &self.route else { return UNMATCHED.to_owned() };
        format!("{} {}", self.method, route.replace("{*", ":").replace('{', ":").replace('}', ""))
    }
}

/// How many requests a process has.
pub fn share(process: u64) -> u64 {
    match process {
        RAW.. => RAW_PATHS,
        0 => REQUESTS - (PROCESSES - 1) * (REQUESTS / PROCESSES),
        _ => REQUESTS / PROCESSES,
    }
}

/// Connections that a process has open.
pub fn open(process: u64) -> u64 {
    3 + 2 * process
}

/// The request of this number.
pub fn asked(process: u64, number: u64) -> Asked {
    let mut rng = Rng::with_seed(process << 32 | number);
    if process >= RAW {
        let route = Some(format!("/raw/{process}/{number}"));
        return Asked { route, method: Method::GET, status: 404, us: 100 };
    }
    let route = (rng.u8(..20) > 0).then(|| ROUTES[rng.usize(..ROUTES.len())].to_owned());
    let method = if rng.u8(..4) == 0 { Method::POST } else { Method::GET };
    let status = [200, 200, 200, 200, 200, 201, 404, 429, 500, 503][rng.usize(..10)];
    // Many equal values, and a long tail.
    let us = match rng.u8(..100) {
        0..=59 => 5_000,
        60..=89 => rng.u64(1..20_000),
        90..=98 => 1 << rng.u32(5..24),
        _ => rng.u64(1_000_000..60_000_000),
    };
    Asked { route, method, status, us }
}

#[derive(Debug, Default)]
struct Exact {
    errors: u64,
    times: Vec<u64>,
}

/// Compares a report with what these processes recorded, counted here again; what differs, a line each.
pub fn differences(report: &Report, processes: &[u64]) -> Vec<String> {
    let mut endpoints: BTreeMap<String, Exact> = BTreeMap::new();
    let mut by_status: BTreeMap<u16, u64> = BTreeMap::new();
    let (mut total, mut accepted) = (0, 0);
    let mut instances = Vec::new();
    for process in processes {
        instances.push((format!("i{process}"), share(*process)));
        for number in 0..share(*process) {
            let asked = asked(*process, number);
            total += 1;
            accepted += u64::from(asked.status != 429);
            let exact = endpoints.entry(asked.endpoint()).or_default();
            exact.times.push(asked.us);
            if asked.status >= 400 {
                exact.errors += 1;
                *by_status.entry(asked.status).or_default() += 1;
            }
        }
    }
    let mut found = Vec::new();
    let mut differ = |what: &str, told: &dyn std::fmt::Debug, exact: &dyn std::fmt::Debug| {
        if format!("{told:?}") != format!("{exact:?}") {
            found.push(format!("{what}: told {told:?}, counted {exact:?}"));
        }
    };
    differ("total", &report.total, &total);
    differ("accepted", &report.accepted, &accepted);
    differ("errors", &report.errors, &by_status.values().sum::<u64>());
    differ("by status", &report.by_status, &by_status.into_iter().collect::<Vec<_>>());
    differ("instances", &report.instances, &instances);
    differ("hours together", &report.hourly.iter().map(|(_, count)| count).sum::<u64>(), &total);
    differ("endpoints", &report.endpoints.len(), &endpoints.len());
    for told in &report.endpoints {
        let Some(exact) = endpoints.get_mut(&told.name) else {
            differ(&told.name, &told.count, &0);
            continue;
        };
        exact.times.sort_unstable();
        let sum: u64 = exact.times.iter().sum();
        differ(&told.name, &(told.count, told.errors), &(exact.times.len() as u64, exact.errors));
        differ(&format!("{} avg", told.name), &told.avg_us, &(sum / exact.times.len() as u64));
        for (percent, us) in [(50, told.p50_us), (95, told.p95_us), (99, told.p99_us)] {
            let nearest = exact.times[(exact.times.len() * percent).div_ceil(100).max(1) - 1];
            if us.abs_diff(nearest) * u64::from(ERROR_ONE_IN) > nearest {
                differ(&format!("{} p{percent}", told.name), &us, &nearest);
            }
        }
    }
    found
}

//! The report of a stats for people: a few sums, then a table of endpoints.

use std::fmt::Write as _;

use quaymaster_server::StatsReport;

use crate::output::{self, printable};

/// Instances and hours named one by one.
const NAMED: usize = 8;

/// All of it, over several lines.
pub(crate) fn table(report: &StatsReport) -> String {
    let (requests, connections) = (&report.requests, &report.connections);
    let statuses = report.errors.by_status.iter().map(|(status, count)| format!("{status}: {count}"));
    let instances = report.instances.iter().map(|(id, count)| format!("{}: {count}", printable(id)));
    let hours = report.hourly.iter().rev().map(|hour| format!("{}: {}", clock(hour.hour_ms), hour.count));
    let mut text = output::table(&[
        (
            "requests",
            format!(
                "{} of which {} accepted; {} a second, at most {}",
                requests.total, requests.accepted, requests.speed_per_second, requests.max_speed_per_second
            ),
        ),
        ("connections", format!("{}, at most {}", connections.current, connections.max_since_startup)),
        ("errors", with(report.errors.total.to_string(), statuses.collect())),
        ("instances", with(format!("{} alive", report.alive), instances.collect())),
        ("hours (UTC)", some(hours.collect())),
    ]);
    text.push('\n');
    let rows = report.endpoints.iter().map(|found| {
        let ms = |ms: f64| format!("{ms:.3}");
        [
            found.count.to_string(),
            found.errors.to_string(),
            ms(found.avg_ms),
            ms(found.p50_ms),
            ms(found.p95_ms),
            ms(found.p99_ms),
            printable(&found.endpoint),
        ]
    });
    let heading = ["requests", "errors", "avg ms", "p50 ms", "p95 ms", "p99 ms", "endpoint"];
    text.push_str(&output::columns(heading, rows.collect()));
    let more = report.endpoints_total.saturating_sub(report.endpoints.len() as u64);
    if more > 0 {
        let _ = writeln!(text, "{}: --endpoints", output::others(more));
    }
    text
}

/// The sums on one line.
pub(crate) fn line(report: &StatsReport) -> String {
    format!(
        "{} requests={} accepted={} speed={} connections={} errors={} instances={}\n",
        report.generated_at,
        report.requests.total,
        report.requests.accepted,
        report.requests.speed_per_second,
        report.connections.current,
        report.errors.total,
        report.alive
    )
}

/// The hour of a day, `14:00`.
fn clock(hour_ms: i64) -> String {
    format!("{:02}:00", hour_ms.div_euclid(3_600_000).rem_euclid(24))
}

fn with(total: String, parts: Vec<String>) -> String {
    if parts.is_empty() { total } else { format!("{total} ({})", some(parts)) }
}

fn some(mut parts: Vec<String>) -> String {
    let more = parts.len().saturating_sub(NAMED);
    parts.truncate(NAMED);
    if more > 0 {
        parts.push(output::others(more as u64));
    }
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const TOLD: &str = r#"{"requests":{"total":7,"accepted":6,"speed_per_second":2,"max_speed_per_second":5},
        "connections":{"current":3,"max_since_startup":9},"errors":{"total":1,"by_status":{"429":1}},
        "endpoints":[{"endpoint":"GET /users/:id","count":7,"errors":1,"avg_ms":1.5,"p50_ms":1.0,"p95_ms":12.25,
        "p99_ms":100.0}],"endpoints_total":3,"instances":{"0":4,"1":3},"alive":2,"started_at":null,
        "hourly":[{"hour_ms":1672531200000,"count":7}],"percentile_error":0.0078125,
        "generated_at":"2026-01-24T10:31:00.000000Z"}"#;

    #[test]
    fn a_report_reads_as_sums_and_a_table_of_endpoints() {
        let report: StatsReport = serde_json::from_str(TOLD).unwrap();
        let shown = "requests     7 of which 6 accepted; 2 a second, at most 5\n\
                     connections  3, at most 9\n\
                     errors       1 (429: 1)\n\
                     instances    2 alive (0: 4, 1: 3)\n\
                     hours (UTC)  00:00: 7\n\
                     \n\
                     requests  errors  avg ms  p50 ms  p95 ms  p99 ms   endpoint\n\
                     7         1       1.500   1.000   12.250  100.000  GET /users/:id\n\
                     2 others: --endpoints\n";
        assert_eq!(table(&report), shown);
        assert_eq!(
            line(&report),
            "2026-01-24T10:31:00.000000Z requests=7 accepted=6 speed=2 connections=3 errors=1 instances=2\n"
        );
    }
}

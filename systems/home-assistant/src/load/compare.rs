//! The report before and after, beside what was counted in between.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::Target;
use super::count::{Count, Endpoint};

const GLANCE: Duration = Duration::from_millis(100);

/// The report before the first request.
#[derive(Debug)]
pub(crate) struct Before {
    server: Target,
    rows: BTreeMap<String, u64>,
}

/// Every number twice.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Compared {
    rows: Vec<(String, u64, u64)>,
    /// Rows in which they differ by more than what nobody can know.
    pub(crate) apart: usize,
}

impl Before {
    /// Asks for the report.
    pub(crate) async fn look(server: Target) -> anyhow::Result<Self> {
        let rows = read(&server).await?.rows();
        Ok(Self { server, rows })
    }

    /// Asks until it agrees, or for as long as an instance may take to flush.
    pub(crate) async fn compare(&self, count: &Count, patience: Duration) -> anyhow::Result<Compared> {
        let until = Instant::now() + patience;
        loop {
            let now = read(&self.server).await?.rows();
            let grown = now
                .into_iter()
                .map(|(name, now)| {
                    let before = self.rows.get(&name).copied().unwrap_or(0);
                    (name, now.saturating_sub(before))
                })
                .collect();
            let compared = Compared::new(&count.rows(), &grown, count.unanswered);
            if compared.apart == 0 || Instant::now() > until {
                return Ok(compared);
            }
            tokio::time::sleep(GLANCE).await;
        }
    }
}

/// All of the report that can be counted.
async fn read(server: &Target) -> anyhow::Result<Count> {
    let report = server.json("/v1/stats/ha/report").await?;
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let mut count = Count {
        requests: number(&report["requests"]["total"]),
        accepted: number(&report["requests"]["accepted"]),
        errors: number(&report["errors"]["total"]),
        ..Count::default()
    };
    for (status, errors) in report["errors"]["by_status"].as_object().into_iter().flatten() {
        count.by_status.insert(status.parse()?, number(errors));
    }
    for endpoint in report["endpoints"].as_array().into_iter().flatten() {
        let name = endpoint["endpoint"].as_str().unwrap_or_default().to_owned();
        let own = Endpoint { count: number(&endpoint["count"]), errors: number(&endpoint["errors"]) };
        count.endpoints.insert(name, own);
    }
    for (instance, requests) in report["instances"].as_object().into_iter().flatten() {
        count.instances.insert(instance.clone(), number(requests));
    }
    Ok(count)
}

impl Compared {
    /// What was not answered may be in the store or not; everything else must be, once.
    fn new(counted: &BTreeMap<String, u64>, grown: &BTreeMap<String, u64>, unanswered: u64) -> Self {
        let names: BTreeSet<&String> = counted.keys().chain(grown.keys()).collect();
        let of = |rows: &BTreeMap<String, u64>, name: &String| rows.get(name).copied().unwrap_or(0);
        let mut rows: Vec<(String, u64, u64)> =
            names.into_iter().map(|name| (name.clone(), of(counted, name), of(grown, name))).collect();
        rows.retain(|(_, counted, grown)| *counted > 0 || *grown > 0);
        let apart = rows
            .iter()
            .filter(|(_, counted, grown)| !(*counted..=counted + unanswered).contains(grown))
            .count();
        Self { rows, apart }
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>10} {:>10}", "counted", "reported")?;
        for (name, counted, grown) in &self.rows {
            let mark = if counted == grown { "" } else { "  <-- differs" };
            writeln!(f, "{counted:>10} {grown:>10}  {name}{mark}")?;
        }
        match self.apart {
            0 => write!(f, "they agree"),
            apart => write!(f, "{apart} of {} differ", self.rows.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[(&str, u64)]) -> BTreeMap<String, u64> {
        rows.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn one_request_too_many_or_too_few_is_told() {
        let counted = rows(&[("requests", 10), ("GET /a", 10)]);
        assert_eq!(Compared::new(&counted, &counted, 0).apart, 0);
        for (total, of_a) in [(9, 10), (10, 11), (11, 9)] {
            let compared = Compared::new(&counted, &rows(&[("requests", total), ("GET /a", of_a)]), 0);
            assert!(compared.apart > 0, "{compared}");
        }
        let foreign = Compared::new(&counted, &rows(&[("requests", 10), ("GET /a", 10), ("GET /b", 1)]), 0);
        assert!(foreign.to_string().ends_with("1 of 3 differ"), "{foreign}");
    }

    #[test]
    fn what_nobody_answered_may_be_there_or_not() {
        let counted = rows(&[("requests", 10)]);
        for (grown, apart) in [(9, 1), (10, 0), (12, 0), (13, 1)] {
            assert_eq!(Compared::new(&counted, &rows(&[("requests", grown)]), 2).apart, apart, "{grown}");
        }
    }
}

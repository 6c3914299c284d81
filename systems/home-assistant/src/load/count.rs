//! The separate count: made of the answers alone, and of nothing that the store or an instance says about itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How a limit refuses: used up, or not to be asked. No handler answers either of them.
const REFUSALS: [u16; 2] = [429, 503];

/// Requests and errors of an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Endpoint {
    pub(crate) count: u64,
    pub(crate) errors: u64,
}

/// What was answered, by whom and how.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Count {
    /// Requests that were answered.
    pub(crate) requests: u64,
    /// Those that were not refused by a limit.
    pub(crate) accepted: u64,
    /// Those with a status from 400.
    pub(crate) errors: u64,
    /// Errors by status.
    pub(crate) by_status: BTreeMap<u16, u64>,
    /// Answers by endpoint.
    pub(crate) endpoints: BTreeMap<String, Endpoint>,
    /// Answers by the instance that signed them.
    pub(crate) instances: BTreeMap<String, u64>,
    /// Requests that went out and were not answered: an instance may have counted them or not.
    pub(crate) unanswered: u64,
}

impl Count {
    /// One answer.
    pub(crate) fn answered(&mut self, endpoint: &str, instance: &str, status: u16) {
        let failed = u64::from(status >= 400);
        self.requests += 1;
        self.accepted += u64::from(!REFUSALS.contains(&status));
        self.errors += failed;
        if failed == 1 {
            *self.by_status.entry(status).or_default() += 1;
        }
        let of_endpoint = self.endpoints.entry(endpoint.to_owned()).or_default();
        of_endpoint.count += 1;
        of_endpoint.errors += failed;
        *self.instances.entry(instance.to_owned()).or_default() += 1;
    }

    /// Both together.
    pub(crate) fn add(&mut self, other: &Count) {
        self.requests += other.requests;
        self.accepted += other.accepted;
        self.errors += other.errors;
        self.unanswered += other.unanswered;
        for (status, count) in &other.by_status {
            *self.by_status.entry(*status).or_default() += count;
        }
        for (name, endpoint) in &other.endpoints {
            let own = self.endpoints.entry(name.clone()).or_default();
            own.count += endpoint.count;
            own.errors += endpoint.errors;
        }
        for (name, count) in &other.instances {
            *self.instances.entry(name.clone()).or_default() += count;
        }
    }

    /// Every number with a name, as the report has them too.
    pub(crate) fn rows(&self) -> BTreeMap<String, u64> {
        let mut rows = BTreeMap::from([
            ("requests".to_owned(), self.requests),
            ("accepted".to_owned(), self.accepted),
            ("errors".to_owned(), self.errors),
        ]);
        rows.extend(self.by_status.iter().map(|(status, count)| (format!("status {status}"), *count)));
        for (name, endpoint) in &self.endpoints {
            rows.insert(name.clone(), endpoint.count);
            rows.insert(format!("{name} (errors)"), endpoint.errors);
        }
        rows.extend(self.instances.iter().map(|(name, count)| (format!("instance {name}"), *count)));
        // A name is there in one of the two counts only when it is not zero in it.
        rows.retain(|_, count| *count > 0);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_count_add_up() {
        let (mut one, mut two, mut all) = (Count::default(), Count::default(), Count::default());
        for (count, status) in [(&mut one, 200), (&mut two, 429)] {
            count.answered("GET /a", "0", status);
            all.answered("GET /a", "0", status);
        }
        one.add(&two);
        assert_eq!(one, all);
        assert_eq!((all.requests, all.accepted, all.errors), (2, 1, 1));
        let rows = all.rows();
        assert_eq!(
            (rows["GET /a"], rows["GET /a (errors)"], rows["status 429"], rows["instance 0"]),
            (2, 1, 1, 2)
        );
        assert!(!rows.contains_key("status 200"));
    }
}

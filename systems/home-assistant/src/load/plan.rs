//! What is asked: a mix of calls as a backend sees them, the same for the same seed.

use std::net::Ipv4Addr;

use axum::http::Method;

/// How long a device lets its callers wait, in milliseconds: most not at all, many equally long, few very long.
const WAITS_MS: [u64; 10] = [0, 0, 0, 0, 0, 5, 5, 5, 20, 60];

/// One request, and the endpoint it must be counted under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: String,
    pub(crate) endpoint: &'static str,
    pub(crate) caller: Ipv4Addr,
}

/// The mix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) callers: u32,
}

impl Plan {
    /// The request of this number.
    pub(crate) fn ask(&self, number: u64) -> Asked {
        let mut random = fastrand::Rng::with_seed(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number);
        let id = random.u64(1..1_000_000);
        let (method, path, body, endpoint) = match random.u32(0..100) {
            0..30 => (Method::GET, "/api/users".to_owned(), String::new(), "GET /api/users"),
            // Four of them are there.
            30..45 => (Method::GET, format!("/api/users/{}", id % 6), String::new(), "GET /api/users/:id"),
            45..55 => {
                let password = if random.bool() { "correct horse" } else { "guessed" };
                let body = format!("{{\"name\":\"ada\",\"password\":\"{password}\"}}");
                (Method::POST, "/api/auth/login".to_owned(), body, "POST /api/auth/login")
            }
            55..65 => (
                Method::POST,
                "/api/forum/questions".to_owned(),
                format!("{{\"title\":\"question {id}\"}}"),
                "POST /api/forum/questions",
            ),
            65..75 => (
                Method::PUT,
                format!("/api/forum/questions/{id}"),
                format!("{{\"title\":\"question {id}\"}}"),
                "PUT /api/forum/questions/:id",
            ),
            75..80 => {
                (Method::GET, "/api/forum/questions".to_owned(), String::new(), "GET /api/forum/questions")
            }
            80..95 => {
                let wait_ms = WAITS_MS[random.usize(0..WAITS_MS.len())];
                (
                    Method::GET,
                    format!("/api/devices/{id}/state?wait_ms={wait_ms}"),
                    String::new(),
                    "GET /api/devices/:id/state",
                )
            }
            // Somebody looks for doors.
            _ => (Method::GET, format!("/wp-admin/{id}.php"), String::new(), "unmatched"),
        };
        // Not of this world's addresses, and none of them loopback.
        let caller = Ipv4Addr::from_bits((10 << 24) | random.u32(1..=self.callers));
        Asked { method, path, body, endpoint, caller }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_same_seed_asks_the_same() {
        let (one, two) = (Plan { seed: 7, callers: 9 }, Plan { seed: 8, callers: 9 });
        let ask = |plan: &Plan| (0..100).map(|n| plan.ask(n)).collect::<Vec<_>>();
        assert_eq!(ask(&one), ask(&one));
        assert_ne!(ask(&one), ask(&two));
    }

    #[test]
    fn every_endpoint_is_asked_for_and_every_caller_calls() {
        let plan = Plan { seed: 1, callers: 20 };
        let asked: Vec<Asked> = (0..2000).map(|n| plan.ask(n)).collect();
        let endpoints: BTreeSet<&str> = asked.iter().map(|asked| asked.endpoint).collect();
        let callers: BTreeSet<Ipv4Addr> = asked.iter().map(|asked| asked.caller).collect();
        let paths: BTreeSet<&str> = asked.iter().map(|asked| asked.path.as_str()).collect();
        assert_eq!((endpoints.len(), callers.len()), (8, 20));
        assert!(paths.len() > 400, "ids differ: {}", paths.len());
    }
}

//! Whole uploads, from the first byte to the event: on the embedded store with local disk and SQLite, and on Redis with
//! SeaweedFS and PostgreSQL. The same binary is the process that is stopped in the middle.
#![expect(clippy::unwrap_used, clippy::expect_used, unreachable_pub, reason = "tests")]

mod adopt;
mod bound;
mod crash;
mod doctor;
mod ends;
mod faults;
mod flow;
mod leftovers;
mod lost;
mod node;
mod prefix;
mod redis;
mod restarts;
mod rig;
#[path = "../support/seaweed.rs"]
#[allow(dead_code, clippy::allow_attributes, reason = "other tests use the rest")]
mod seaweed;
#[path = "../support/servers.rs"]
mod servers;
mod set;
mod slips;
mod slow;
#[path = "../support/tamper.rs"]
#[allow(dead_code, clippy::allow_attributes, reason = "other tests use the rest")]
mod tamper;
mod topologies;

use libtest_mimic::{Arguments, Trial};

/// One test of its own runtime.
fn trial<F>(name: impl Into<String>, run: impl FnOnce() -> F + Send + 'static) -> Trial
where
    F: Future<Output = ()>,
{
    Trial::test(name, move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(run());
        Ok(())
    })
}

fn main() {
    if let Some(role) = std::env::var_os(crash::ROLE) {
        crash::child(&role.into_string().unwrap());
        return;
    }
    let arguments = Arguments::from_args();
    let rooms = [
        flow::trials(),
        lost::trials(),
        restarts::trials(),
        topologies::trials(),
        bound::trials(),
        slow::trials(),
        faults::trials(),
        ends::trials(),
        leftovers::trials(),
        doctor::trials(),
        slips::trials(),
        prefix::trials(),
        adopt::trials(),
        crash::trials(),
    ];
    libtest_mimic::run(&arguments, rooms.into_iter().flatten().collect()).exit();
}

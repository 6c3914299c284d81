//! The uploads system as its README runs it on more than one machine: `serve`, `worker` and `upload put` as processes, on
//! Redis, SeaweedFS, PostgreSQL and a broker. In the soak the broker is a program of its own too.
#![expect(clippy::unwrap_used, reason = "tests")]

mod broker;
#[path = "../cli/process.rs"]
#[allow(dead_code, clippy::allow_attributes, reason = "other tests use the rest")]
mod process;
#[path = "../../../upload/tests/support/seaweed.rs"]
#[allow(dead_code, unreachable_pub, clippy::allow_attributes, reason = "other tests use the rest")]
mod seaweed;
#[path = "../../../upload/tests/support/servers.rs"]
mod servers;
#[path = "../cli/topic.rs"]
mod topic;
mod uploads;

use libtest_mimic::{Arguments, Trial};

use broker::{Broker, Mock, Tansu};
use servers::address;

fn main() {
    let soak = std::env::var_os("QUAYMASTER_SOAK").is_some();
    let kills = if soak { 20 } else { 2 };
    let mut trials = vec![trial("mock", kills, Mock::start)];
    if soak {
        trials.push(trial("tansu", kills, Tansu::start));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn trial<B: Broker>(name: &str, kills: usize, start: impl FnOnce() -> B + Send + 'static) -> Trial {
    Trial::test(format!("{name}::every_upload_is_one_event_whoever_is_killed"), move || {
        uploads::every_upload_is_one_event_whoever_is_killed(start(), kills);
        Ok(())
    })
}

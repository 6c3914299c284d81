//! kill -9 at any moment, round after round: of a process that does everything, on the embedded set; of servers and of
//! workers in processes of their own, several uploads at once, on Redis, SeaweedFS and PostgreSQL.
//!
//! A few rounds by default, two hundred of each set under `QUAYMASTER_SOAK=1`; `QUAYMASTER_ROUNDS` says how many.

use std::process::Child;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use quaymaster_upload::ledger::Step;
use tempfile::TempDir;

use super::child::{SERVER, WORKER, documents};
use super::story::{Story, document};
use super::{PATIENCE, kill, start, verify_completed};
use crate::rig::{Place, Rig};
use crate::set::{Servers, rounds};
use crate::trial;

/// Rounds on one set of servers: their disks are small, and nothing is ever deleted.
const PER_SET: u64 = 10;

/// Two lanes side by side: most of a round is waiting for the lease of somebody who was killed.
const LANES: u64 = 2;

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial("crash::spool::killed_at_any_moment", || killed_at_any_moment(true)),
        trial("crash::store::killed_at_any_moment", || killed_at_any_moment(false)),
    ];
    for lane in 0..LANES {
        let name = format!("crash::servers::killed_at_any_moment_{lane}");
        trials.push(trial(name, move || servers_and_workers_are_killed(lane)));
    }
    trials
}

/// kill -9 wherever it is, again and again, until one is quick enough.
async fn killed_at_any_moment(spooled: bool) {
    for round in 0..rounds(4, 100) {
        let folder = TempDir::new().unwrap();
        let place = Place { reservation_ms: 1500, ..Place::in_folder(folder.path(), spooled) };
        let mut random = fastrand::Rng::with_seed(round);
        // Longer every time, so that it ends.
        for attempt in 1.. {
            let mut process = start(&place, Story::Complete.name(), None);
            std::thread::sleep(Duration::from_millis(random.u64(0..100 * attempt)));
            if let Some(status) = process.try_wait().unwrap() {
                assert!(status.success(), "round {round}: {status:?}");
                break;
            }
            kill(&mut process);
        }
        let rig = place.open().await;
        let what = format!("round {round}");
        verify_completed(&rig, &document(&place), &what).await;
        assert_eq!(rig.pending().await, 0, "{what}");
        rig.until_nothing_is_left(&what).await;
    }
}

async fn servers_and_workers_are_killed(lane: u64) {
    let mut left: Vec<u64> = (0..rounds(2, 200)).filter(|round| round % LANES == lane).collect();
    left.reverse();
    let (began, all, mut kills) = (Instant::now(), left.len(), 0);
    while !left.is_empty() {
        let servers = Servers::start().await;
        let folder = TempDir::new().unwrap();
        // A server that is busy making room for new volumes says 500 for a while.
        let place = Place { reservation_ms: 1500, attempts: 30, ..servers.place(folder.path()) };
        let rig = place.open().await;
        for _ in 0..PER_SET {
            let Some(round) = left.pop() else { break };
            let place = Place { document: format!("round-{round}"), ..place.clone() };
            kills += one_round(&place, round);
            verify(&rig, &place, round).await;
        }
        // What was on its way when its process was killed is given back once its time is over.
        rig.until_nothing_is_left(&format!("lane {lane}")).await;
        assert_eq!(rig.pending().await, 0, "a multipart upload is left over");
        assert!(kills > 0, "nobody was killed");
    }
    eprintln!("lane {lane}: {all} rounds, {kills} kills, {:.0} s", began.elapsed().as_secs_f64());
}

/// One process that takes uploads and one that only ships, each killed at random, until the uploads are at their end;
/// how many were killed.
fn one_round(place: &Place, round: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(round);
    let mut kills = 0;
    let mut worker = Process::start(place, WORKER);
    let began = Instant::now();
    // Longer every time, so that it ends.
    for attempt in 1.. {
        assert!(began.elapsed() < PATIENCE, "round {round} does not end");
        let mut server = Process::start(place, SERVER);
        for _ in 0..random.u32(1..3) {
            std::thread::sleep(Duration::from_millis(random.u64(0..150 * attempt)));
            if random.bool() {
                worker.kill();
                kills += 1;
                worker = Process::start(place, WORKER);
            }
        }
        if let Some(status) = server.0.try_wait().unwrap() {
            assert!(status.success(), "round {round}: {status:?}");
            break;
        }
        server.kill();
        kills += 1;
    }
    kills
}

async fn verify(rig: &Rig, place: &Place, round: u64) {
    for document in documents(place) {
        verify_completed(rig, &document, &format!("round {round}, {}", document.key)).await;
    }
    let stuck = rig.uploads.ledger().page("", 10_000).await.unwrap();
    let stuck: Vec<_> = stuck.iter().filter(|upload| upload.step != Step::Done).collect();
    assert!(stuck.is_empty(), "round {round}: {stuck:?}");
}

/// Ends with whoever started it.
struct Process(Child);

impl Process {
    fn start(place: &Place, role: &str) -> Self {
        Self(start(place, role, None))
    }

    fn kill(&mut self) {
        kill(&mut self.0);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

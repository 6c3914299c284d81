//! Begins, finishes, abandons and forgets operations at random until its standard input closes, and tells what
//! happened.
//!
//! Which record a lane works on follows from the store's time, so that every process contends for the same one.
//! One line per event, written before anything else happens, ended by a full stop; times are the store's, in
//! microseconds:
//!
//! | line, after the record | |
//! |---|---|
//! | `started claim from to` | a claim was given between these moments |
//! | `in_progress time` | another one's lives |
//! | `replay time response` | it was finished with this response |
//! | `finishing time claim response` | a finish is about to be sent |
//! | `finished time claim` | it was told so |
//! | `again claim word` | what the same finish, sent once more with another response, was told |
//! | `abandoning time claim` | an abandon is about to be sent |
//! | `abandoned time claim` | it was told so |
//! | `lost time claim` | a finish or abandon was told "lost" |
//! | `error code` | the call may have run |

#![expect(clippy::expect_used, reason = "a worker that cannot do its work ends, and the test with it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use quaymaster::idempotency::{Abandoned, Begin, Begun, Claim, Finished, Idempotency, Replay};
use quaymaster::store::Reply;
use quaymaster::{Result, Retry};
use quaymaster_testkit::conformance::command;
use quaymaster_testkit::crew::actor::{Actor, tell};
use quaymaster_testkit::idempotency_history::{CLAIM_US, EPOCH_US, Event, LANES, SCHEMA};

#[tokio::main]
async fn main() {
    let actor = Actor::enter(SCHEMA).await;
    let history = actor.quaymaster.idempotency("history").expect("declared").clone();
    let names = Arc::new(AtomicU64::new(0));
    let lanes: Vec<_> = (0..LANES)
        .map(|lane| {
            let rng = Rng::with_seed(actor.seed * 1000 + lane as u64);
            let (history, actor, names) = (history.clone(), actor.clone(), names.clone());
            let lane = Lane { number: lane, history, actor, rng, names, id: String::new() };
            tokio::spawn(lane.run())
        })
        .collect();
    for lane in lanes {
        lane.await.expect("a lane ends");
    }
    actor.leave().await;
}

struct Lane {
    number: usize,
    history: Idempotency,
    actor: Actor,
    rng: Rng,
    names: Arc<AtomicU64>,
    /// The record it works on.
    id: String,
}

impl Lane {
    async fn run(mut self) {
        while !self.actor.stopped() {
            if let Err(error) = self.one().await {
                assert!(error.code.retry() != Retry::Useless, "{error}");
                self.tell(&Event::Error { code: error.code.name().to_owned() });
                self.nap(20_000).await;
            }
        }
    }

    fn tell(&self, event: &Event) {
        tell(format_args!("{} {event} .", self.id));
    }

    async fn now(&self) -> Result<i64> {
        self.actor.now_us().await
    }

    async fn nap(&mut self, most_us: u64) {
        tokio::time::sleep(Duration::from_micros(self.rng.u64(0..=most_us))).await;
    }

    /// One attempt at the operation, and what becomes of it.
    async fn one(&mut self) -> Result<()> {
        self.nap(10_000).await;
        let asked = self.now().await?;
        self.id = format!("{}-{}", self.number, asked / EPOCH_US);
        let wait = match self.rng.u8(0..10) {
            0..4 => 0,
            4..7 => self.rng.u64(1..60),
            _ => 2_000,
        };
        let id = self.id.clone();
        let key: &[(&str, &str)] = &[("id", &id)];
        let begin = Begin { wait: Duration::from_millis(wait), ..Begin::default() };
        let claim = match self.history.begin(key, begin).await? {
            Begun::Started(claim) => claim,
            Begun::InProgress { .. } => {
                let time = self.now().await?;
                self.tell(&Event::Waiting { time });
                return Ok(());
            }
            Begun::Finished(Replay { response }) => {
                let time = self.now().await?;
                let response =
                    response.map_or("none".to_owned(), |r| String::from_utf8_lossy(&r).into_owned());
                self.tell(&Event::Replay { time, response });
                return Ok(());
            }
            Begun::Mismatch => panic!("no fingerprint was given"),
        };
        let (from, to) = self.given(&claim, asked).await?;
        let number = self.names.fetch_add(1, Ordering::SeqCst);
        let name = format!("{}.{number}", self.actor.seed);
        self.tell(&Event::Started { claim: name.clone(), from, to });
        // Mostly within the claim, sometimes past it.
        let most = if self.rng.u8(0..6) == 0 { CLAIM_US * 2 } else { CLAIM_US / 2 };
        self.nap(most as u64).await;
        match self.rng.u8(0..10) {
            0..4 => self.finish(key, &claim, name).await,
            4..7 => self.abandon(key, &claim, name).await,
            // Forgotten: it ends by itself.
            _ => Ok(()),
        }
    }

    /// When the claim was given: exactly, where its record still says so.
    async fn given(&self, claim: &Claim, asked: i64) -> Result<(i64, i64)> {
        let key = format!("history:{}", self.id);
        let told = command(&*self.actor.engine, key.as_bytes(), &[b"GET", key.as_bytes()]).await?;
        let text = match &told {
            Reply::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        };
        match text.split(' ').collect::<Vec<_>>()[..] {
            ["p", token, deadline_ms, _] if token == claim.token.as_str() => {
                let at = deadline_ms.parse::<i64>().expect("a deadline") * 1000 - CLAIM_US;
                Ok((at, at))
            }
            _ => Ok((asked, self.now().await?)),
        }
    }

    async fn finish(&mut self, key: &[(&str, &str)], claim: &Claim, name: String) -> Result<()> {
        let response = format!("answer-of-{name}");
        let time = self.now().await?;
        self.tell(&Event::Finishing { time, claim: name.clone(), response: response.clone() });
        let told = self.history.finish(key, &claim.token, Some(response.as_bytes())).await?;
        let time = self.now().await?;
        match told {
            Finished::Finished { .. } => self.tell(&Event::Finished { time, claim: name.clone() }),
            Finished::Lost => {
                self.tell(&Event::Lost { time, claim: name });
                return Ok(());
            }
        }
        if self.rng.u8(0..3) == 0 {
            self.nap(CLAIM_US as u64 * 2).await;
            let told = match self.history.finish(key, &claim.token, Some(b"another-answer")).await? {
                Finished::Finished { .. } => "finished",
                Finished::Lost => "lost",
            };
            self.tell(&Event::Again { claim: name, told: told.to_owned() });
        }
        Ok(())
    }

    async fn abandon(&mut self, key: &[(&str, &str)], claim: &Claim, name: String) -> Result<()> {
        let time = self.now().await?;
        self.tell(&Event::Abandoning { time, claim: name.clone() });
        let told = self.history.abandon(key, &claim.token, None).await?;
        let time = self.now().await?;
        match told {
            Abandoned::Abandoned | Abandoned::Away(_) => self.tell(&Event::Abandoned { time, claim: name }),
            Abandoned::Lost => self.tell(&Event::Lost { time, claim: name }),
        }
        Ok(())
    }
}

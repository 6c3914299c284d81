//! Histories of idempotencies over several processes, and what must hold in every one of them.

use std::collections::BTreeMap;

use crate::crew;

/// The schema of the histories' records: claims that end often, records that outlive their history.
pub const SCHEMA: &str = "[schema]\nname = \"history\"\nowner = \"tests\"\n[idempotency.history]\nkey = \"history:{id}\"\nttl = \"1h\"\nin_progress_ttl = \"100ms\"\n";
/// Records worked on at once.
pub const LANES: usize = 10;
/// How long a lane works on one record, by the store's time.
pub const EPOCH_US: i64 = 500_000;
/// How long a claim lives.
pub const CLAIM_US: i64 = 100_000;
/// Claims are kept in milliseconds, and `TIME` may move on while a script runs.
const TOLERANCE_US: i64 = 10_000;

crate::events! {
    Started "started" { claim: String, from: i64, to: i64 }
    Waiting "in_progress" { time: i64 }
    Replay "replay" { time: i64, response: String }
    Finishing "finishing" { time: i64, claim: String, response: String }
    Finished "finished" { time: i64, claim: String }
    Again "again" { claim: String, told: String }
    Abandoning "abandoning" { time: i64, claim: String }
    Abandoned "abandoned" { time: i64, claim: String }
    Lost "lost" { time: i64, claim: String }
    Error "error" { code: String }
}

/// Everything one process told.
#[derive(Debug, Default, Clone)]
pub struct Log {
    /// Record and event, in order within a lane.
    pub lines: Vec<(String, Event)>,
    /// It was killed: its last words may be missing.
    pub killed: bool,
}

impl crew::Log for Log {
    fn note(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let record = words.next().map(str::to_owned);
        let event = parse(&mut words);
        // Half a line may look whole; a whole one ends with its full stop.
        if words.next() == Some(".") {
            self.lines.extend(record.zip(event));
        }
    }

    fn end_by_kill(&mut self) {
        self.killed = true;
    }
}

/// One claim as its holder could know it.
#[derive(Debug, Clone, Default)]
struct Claim {
    name: String,
    /// It was given within these moments.
    from: i64,
    to: i64,
    /// When a finish was sent, and with which response.
    finishing: Option<(i64, String)>,
    finished: Option<i64>,
    abandoning: Option<i64>,
    lost: Option<i64>,
}

/// What was seen, so that a run in which nothing happened is noticed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Tally {
    /// Records that were claimed at least once.
    pub records: usize,
    /// Claims.
    pub claims: usize,
    /// Claims of a record that another one had claimed before.
    pub reclaimed: usize,
    /// Records that were finished.
    pub finished: usize,
    /// Finishes sent a second time.
    pub again: usize,
    /// Claims given back.
    pub abandoned: usize,
    /// Claims that were told they are lost.
    pub lost: usize,
    /// Responses replayed.
    pub replays: usize,
    /// Calls without an answer, by code.
    pub errors: BTreeMap<String, usize>,
}

#[derive(Debug, Default)]
struct History {
    claims: Vec<Claim>,
    replays: Vec<(i64, String)>,
}

/// Checks every record's history; the first thing that must not be, or what was seen.
pub fn check(logs: &[Log]) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut histories: BTreeMap<&str, History> = BTreeMap::new();
    for (record, event) in logs.iter().flat_map(|log| &log.lines) {
        gather(record, event, histories.entry(record).or_default(), &mut tally)?;
    }
    for (record, history) in &mut histories {
        history.claims.sort_by_key(|claim| claim.from);
        tally.records += usize::from(!history.claims.is_empty());
        tally.claims += history.claims.len();
        tally.reclaimed += history.claims.len().saturating_sub(1);
        tally.replays += history.replays.len();
        let wrong = live_claims_are_left_alone(history)
            .and_then(|()| tokens_are_told_the_truth(history))
            .and_then(|()| one_finish(history, &mut tally))
            .and_then(|()| replays_are_its_response(history));
        wrong.map_err(|wrong| format!("{record}: {wrong}"))?;
    }
    Ok(tally)
}

fn gather(record: &str, event: &Event, history: &mut History, tally: &mut Tally) -> Result<(), String> {
    match event {
        Event::Started { claim, from, to } => {
            history.claims.push(Claim { name: claim.clone(), from: *from, to: *to, ..Claim::default() });
        }
        Event::Replay { time, response } => history.replays.push((*time, response.clone())),
        Event::Finishing { time, claim, response } => {
            claim_of(record, &mut history.claims, claim)?.finishing = Some((*time, response.clone()));
        }
        Event::Finished { time, claim } => {
            claim_of(record, &mut history.claims, claim)?.finished = Some(*time);
        }
        Event::Again { claim, told } => {
            tally.again += 1;
            if told != "finished" {
                return Err(format!("{record}: the finish of {claim}, sent again, was told {told}"));
            }
        }
        Event::Abandoning { time, claim } => {
            claim_of(record, &mut history.claims, claim)?.abandoning = Some(*time);
        }
        Event::Abandoned { .. } => tally.abandoned += 1,
        Event::Lost { time, claim } => {
            tally.lost += 1;
            claim_of(record, &mut history.claims, claim)?.lost = Some(*time);
        }
        Event::Error { code } => *tally.errors.entry(code.clone()).or_default() += 1,
        Event::Waiting { .. } => {}
    }
    Ok(())
}

fn claim_of<'a>(record: &str, claims: &'a mut [Claim], name: &str) -> Result<&'a mut Claim, String> {
    let found = claims.iter_mut().find(|claim| claim.name == name);
    found.ok_or_else(|| format!("{record}: nobody was given the claim {name}"))
}

/// Nobody is given a claim while another one's lives.
fn live_claims_are_left_alone(history: &History) -> Result<(), String> {
    for (at, one) in history.claims.iter().enumerate() {
        // Given back from this moment on, perhaps.
        let until = one.abandoning.unwrap_or(i64::MAX).min(one.from + CLAIM_US);
        let among = |two: &&Claim| two.from > one.to && two.to + TOLERANCE_US < until;
        if let Some(two) = history.claims[at + 1..].iter().find(among) {
            return Err(format!("a live claim was reclaimed: {one:?} by {two:?}"));
        }
    }
    Ok(())
}

/// Who holds a live claim is not told that it is lost, and who holds a dead one not that it finished.
fn tokens_are_told_the_truth(history: &History) -> Result<(), String> {
    for claim in &history.claims {
        if claim.lost.is_some_and(|lost| lost + TOLERANCE_US < claim.from + CLAIM_US) {
            return Err(format!("a live claim was told that it is lost: {claim:?}"));
        }
        let (sent, told) = (claim.finishing.as_ref().map(|(sent, _)| *sent), claim.finished);
        if told.is_some() && sent.is_some_and(|sent| sent > claim.to + CLAIM_US + TOLERANCE_US) {
            return Err(format!("a dead claim finished: {claim:?}"));
        }
    }
    Ok(())
}

/// At most one finishes, and nobody begins afterwards.
fn one_finish(history: &History, tally: &mut Tally) -> Result<(), String> {
    let finishers: Vec<&Claim> = history.claims.iter().filter(|claim| claim.finished.is_some()).collect();
    if let [one, two, ..] = &finishers[..] {
        return Err(format!("two finishes: {one:?} and {two:?}"));
    }
    tally.finished += usize::from(!finishers.is_empty() || !history.replays.is_empty());
    let told = finishers.iter().filter_map(|claim| claim.finished);
    let known = told.chain(history.replays.iter().map(|(time, _)| *time)).min();
    let late = known.and_then(|known| history.claims.iter().find(|claim| claim.from > known + TOLERANCE_US));
    match late {
        Some(late) => Err(format!("begun again after it was finished at {known:?}: {late:?}")),
        None => Ok(()),
    }
}

/// Everybody is told one response: the finisher's.
fn replays_are_its_response(history: &History) -> Result<(), String> {
    let Some((time, response)) = history.replays.iter().min() else { return Ok(()) };
    if let Some((_, other)) = history.replays.iter().find(|(_, other)| other != response) {
        return Err(format!("two responses were replayed: {response} and {other}"));
    }
    let sender = history
        .claims
        .iter()
        .find(|claim| claim.finishing.as_ref().is_some_and(|(_, sent)| sent == response));
    match sender {
        None => Err(format!("nobody sent the response {response} that was replayed")),
        Some(sender) if sender.lost.is_some() => {
            Err(format!("the response of a lost claim was replayed: {sender:?}"))
        }
        Some(sender) if sender.finishing.as_ref().is_some_and(|(sent, _)| sent > time) => {
            Err(format!("replayed at {time}, before it was sent: {sender:?}"))
        }
        Some(sender) => {
            let finisher = history.claims.iter().find(|claim| claim.finished.is_some());
            match finisher.filter(|finisher| finisher.name != sender.name) {
                Some(finisher) => Err(format!("{finisher:?} finished, {sender:?} was replayed")),
                None => Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::expect_used, reason = "a failed expectation is a failed test")]
    use super::*;
    use crate::crew::Log as _;

    fn checked(lines: &[&str]) -> Result<Tally, String> {
        let mut log = Log::default();
        for line in lines {
            log.note(&format!("r {line} ."));
        }
        assert_eq!(log.lines.len(), lines.len(), "a line was not read");
        check(&[log])
    }

    fn found(lines: &[&str]) -> String {
        checked(lines).expect_err("it must be found")
    }

    #[test]
    fn a_record_that_changes_hands_and_is_finished_once_is_fine() {
        let tally = checked(&[
            "started a 0 100",
            "in_progress 50000",
            "started b 101000 101000",
            "finishing 120000 a A",
            "lost 121000 a",
            "abandoning 130000 b",
            "abandoned 131000 b",
            "started c 130500 130500",
            "finishing 140000 c C",
            "finished 141000 c",
            "again c finished",
            "replay 140800 C",
        ])
        .expect("nothing is wrong");
        assert_eq!((tally.records, tally.claims, tally.reclaimed, tally.finished), (1, 3, 2, 1));
        assert_eq!((tally.abandoned, tally.lost, tally.replays, tally.again), (1, 1, 1, 1));
    }

    #[test]
    fn half_a_line_is_not_read() {
        let mut log = Log::default();
        log.note("r started a 0 10");
        log.note("r finishing 5 a .");
        assert!(log.lines.is_empty());
    }

    #[test]
    fn what_must_not_be_is_found() {
        for (lines, what) in [
            (&["started a 0 0", "started b 50000 50000"][..], "reclaimed"),
            (&["started a 0 0", "finishing 40000 a A", "lost 41000 a"], "told that it is lost"),
            (&["started a 0 0", "finishing 150000 a A", "finished 151000 a"], "dead claim"),
            (
                &[
                    "started a 0 0",
                    "finishing 50000 a A",
                    "finished 51000 a",
                    "started b 101000 101000",
                    "finishing 102000 b B",
                    "finished 103000 b",
                ],
                "two finishes",
            ),
            (
                &["started a 0 0", "finishing 50000 a A", "finished 51000 a", "started b 101000 101000"],
                "begun again",
            ),
            (&["started a 0 0", "finishing 1000 a A", "replay 2000 A", "replay 3000 B"], "two responses"),
            (&["started a 0 0", "replay 2000 A"], "nobody sent"),
            (&["started a 0 0", "finishing 3000 a A", "replay 2000 A"], "before it was sent"),
            (
                &["started a 0 0", "finishing 150000 a A", "lost 151000 a", "replay 160000 A"],
                "response of a lost claim",
            ),
            (
                &[
                    "started a 0 0",
                    "finishing 90000 a A",
                    "started b 101000 101000",
                    "finishing 102000 b B",
                    "finished 103000 b",
                    "replay 104000 A",
                ],
                "was replayed",
            ),
            (&["started a 0 0", "finishing 1 a A", "finished 2 a", "again a lost"], "sent again"),
        ] {
            let wrong = found(lines);
            assert!(wrong.contains(what), "{what}: {wrong}");
        }
    }
}

//! Every interleaving of two workers on one upload: crashes, lost and delayed answers, leases that lapse under a living
//! owner, completions that are repeated, reopened, called off and expired, a row that another program removes, looks that
//! fail. What decides is the function that runs in production; ledger and object store are the few lines that say what
//! they promise.

use quaymaster_upload::complete::{Asked, Begun, Did, Flaw, Known, Next, Row, Seen, decide};
use quaymaster_upload::ledger::Step;
use stateright::{Checker as _, Model, Property};

/// What may go wrong, and how often on one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Bad {
    crashes: u8,
    lost_answers: u8,
    delays: u8,
    refusals: u8,
    lapses: u8,
    reopens: u8,
    removals: u8,
    hidden: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Multipart {
    Open,
    Completed,
    Aborted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Worker {
    Idle,
    Owns { fence: u8, known: Known },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct World {
    // The ledger.
    step: Step,
    fence: u8,
    lease: bool,
    late: bool,
    /// Whether it was given up for nothing but its deadline.
    given_up_late: bool,
    /// Transactions that made the row ACTIVE and put an event into the outbox.
    rows: u8,
    /// Whether the row is there at all.
    row: Row,
    // The object store.
    multipart: Multipart,
    object: bool,
    made: u8,
    /// Requests to complete that are still on their way.
    flying: u8,
    // Readers of events, and the store's view.
    told: bool,
    shown: Option<bool>,
    workers: [Worker; 2],
    left: Bad,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Aim {
    Complete,
    Expire,
    Abort,
}

/// How a call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Fate {
    Fine,
    /// It was done, and the caller does not hear of it.
    LostAnswer,
    /// It will be done later; the caller has given up waiting.
    Delayed,
    /// The object store says that it will never do it.
    Refused,
    /// The object store lets nobody look.
    Hidden,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Claim(usize, Aim),
    /// A claim that is granted, and whose claimer dies before it hears of it.
    ClaimUnheard(Aim),
    Act(usize, Fate),
    Crash(usize),
    Lapse,
    DeadlinePasses,
    Lands,
    Reopen,
    /// Another program deletes the row.
    Remove,
    /// And puts it back.
    Restore,
}

impl World {
    fn new(left: Bad) -> Self {
        Self {
            step: Step::Open,
            fence: 0,
            lease: false,
            late: false,
            given_up_late: false,
            rows: 0,
            row: Row::There,
            multipart: Multipart::Open,
            object: false,
            made: 0,
            flying: 0,
            told: false,
            shown: None,
            workers: [Worker::Idle; 2],
            left,
        }
    }

    /// `ledger.begin_completion`, `expire` and `abort` of an upload whose parts are all recorded.
    fn claim(&mut self, aim: Aim) -> Option<(u8, Known)> {
        let ending = self.step.is_ending();
        let (to, begun) = match (aim, self.step) {
            (_, step) if step.is_owned() => {
                if self.lease || ending != (aim != Aim::Complete) {
                    return None;
                }
                (step, Begun::Before)
            }
            // The first owner's fence is 1: whoever goes on with what failed is not the first.
            (Aim::Complete, Step::Open) if self.fence == 0 => (Step::Completing, Begun::Now),
            (Aim::Complete, Step::Open) => (Step::Completing, Begun::Before),
            (Aim::Expire, Step::Failed) if self.late && self.given_up_late => {
                (Step::Completing, Begun::Before)
            }
            (Aim::Expire, Step::Failed) if self.late => (Step::Expiring, Begun::Before),
            (Aim::Abort, Step::Open | Step::Failed) => (Step::Aborting, Begun::Before),
            _ => return None,
        };
        self.step = to;
        self.fence += 1;
        self.lease = true;
        Some((self.fence, Known::on_taking(to, begun, self.late)))
    }

    /// The object store completes what is open; of what is gone it says so or, as some do, that it is done.
    fn complete(&mut self) -> Asked {
        match self.multipart {
            Multipart::Open => {
                self.multipart = Multipart::Completed;
                self.object = true;
                self.made += 1;
                Asked::Done
            }
            Multipart::Completed | Multipart::Aborted => Asked::Gone,
        }
    }

    /// A move of the ledger: holds under the fence only.
    fn move_to(&mut self, fence: u8, from: Step, to: Step) -> bool {
        let ours = self.fence == fence && self.step == from;
        if ours {
            self.step = to;
        }
        ours
    }

    /// One thing that the owner does; what it is afterwards.
    fn act(&mut self, fence: u8, known: Known, fate: Fate) -> Worker {
        let goes_on = |known| Worker::Owns { fence, known };
        // Whoever loses the answer of a call that is no question to the object store lets go without a word.
        let heard = |known| if fate == Fate::LostAnswer { Worker::Idle } else { goes_on(known) };
        let moved = |world: &mut Self, to: Step| {
            if world.move_to(fence, known.step, to) { heard(known.at(to)) } else { Worker::Idle }
        };
        match decide(&known) {
            Next::Look if fate == Fate::Hidden => goes_on(Known { seen: Seen::Hidden, ..known }),
            Next::Look => {
                let seen = if self.object { Seen::Ours } else { Seen::Absent };
                let row = if known.step.is_ending() { self.row } else { known.row };
                heard(Known { seen, row, ..known })
            }
            Next::Ask => match fate {
                Fate::Fine => {
                    let asked = self.complete();
                    goes_on(known.after_asking(asked))
                }
                Fate::LostAnswer => {
                    self.complete();
                    goes_on(known.after_asking(Asked::Unsure))
                }
                Fate::Delayed => {
                    self.flying += 1;
                    goes_on(known.after_asking(Asked::Unsure))
                }
                Fate::Refused => goes_on(known.after_asking(Asked::Refused)),
                Fate::Hidden => goes_on(known.after_asking(Asked::Unsure)),
            },
            Next::Prove => moved(self, Step::Proved),
            Next::Record if self.row == Row::Gone => heard(Known { row: Row::Gone, ..known }),
            Next::Record => {
                let after = moved(self, Step::Recorded);
                if self.step == Step::Recorded && self.fence == fence {
                    self.rows += 1;
                }
                after
            }
            Next::Tell => {
                self.told = true;
                heard(Known { told: Did::Done, ..known })
            }
            Next::Told => moved(self, Step::Announced),
            Next::Show => {
                self.shown = Some(known.step == Step::Announced);
                heard(Known { shown: Did::Done, ..known })
            }
            Next::Finish => moved(self, Step::Done),
            Next::Rescue => moved(self, Step::Completing),
            Next::Cut => {
                if self.multipart == Multipart::Open {
                    self.multipart = Multipart::Aborted;
                }
                heard(known.after_cutting())
            }
            Next::End => {
                let to = if known.step == Step::Expiring { Step::Expired } else { Step::Aborted };
                moved(self, to)
            }
            Next::Fail(flaw) => {
                if self.move_to(fence, known.step, Step::Failed) {
                    self.given_up_late = flaw == Flaw::Late;
                    self.fence += 1;
                    self.lease = false;
                }
                Worker::Idle
            }
            Next::Wait => {
                if self.fence == fence {
                    self.lease = false;
                }
                Worker::Idle
            }
            Next::Stop => Worker::Idle,
        }
    }

    fn next(mut self, action: Action) -> Option<Self> {
        let spend = |left: &mut u8| left.checked_sub(1).map(|less| *left = less);
        match action {
            Action::Claim(who, aim) => {
                let (fence, known) = self.claim(aim)?;
                self.workers[who] = Worker::Owns { fence, known };
            }
            Action::ClaimUnheard(aim) => {
                spend(&mut self.left.lost_answers)?;
                self.claim(aim)?;
            }
            Action::Act(who, fate) => {
                let Worker::Owns { fence, known } = self.workers[who] else { return None };
                match (fate, decide(&known)) {
                    (Fate::Fine, _) => {}
                    (Fate::LostAnswer, _) => spend(&mut self.left.lost_answers)?,
                    (Fate::Delayed, Next::Ask) => spend(&mut self.left.delays)?,
                    (Fate::Refused, Next::Ask) => spend(&mut self.left.refusals)?,
                    (Fate::Hidden, Next::Look) => spend(&mut self.left.hidden)?,
                    _ => return None,
                }
                self.workers[who] = self.act(fence, known, fate);
            }
            Action::Crash(who) => {
                spend(&mut self.left.crashes)?;
                self.workers[who] = Worker::Idle;
            }
            Action::Lapse => {
                spend(&mut self.left.lapses)?;
                self.lease = false;
            }
            Action::DeadlinePasses => self.late = true,
            Action::Lands => {
                self.flying = self.flying.checked_sub(1)?;
                self.complete();
            }
            Action::Reopen => {
                spend(&mut self.left.reopens)?;
                self.step = Step::Open;
                self.late = false;
            }
            Action::Remove => {
                spend(&mut self.left.removals)?;
                self.row = Row::Gone;
            }
            Action::Restore => self.row = Row::There,
        }
        Some(self)
    }

    /// One worker takes it, if it can be taken, and does what it can, each thing with the same fate.
    fn work_past_the_deadline(&mut self, fate: Fate) {
        (self.late, self.lease) = (true, false);
        let Some((fence, known)) = self.claim(Aim::Complete).or_else(|| self.claim(Aim::Expire)) else {
            return;
        };
        let mut worker = Worker::Owns { fence, known };
        for _ in 0..100 {
            let Worker::Owns { fence, known } = worker else { break };
            worker = self.act(fence, known, fate);
        }
    }

    /// Whether past the deadline, with an object store that neither answers nor shows anything, what completes is given
    /// up, what ends waits, and the object store keeps what it has.
    fn gives_up_blindly(mut self) -> bool {
        let was = self;
        self.work_past_the_deadline(Fate::Hidden);
        let kept = (self.multipart, self.object) == (was.multipart, was.object);
        kept && match was.step {
            Step::Open | Step::Completing => self.step == Step::Failed,
            Step::Failed if was.given_up_late => self.step == Step::Failed,
            Step::Failed => self.step == Step::Expiring,
            Step::Expiring | Step::Aborting => self.step == was.step,
            Step::Proved => matches!(self.step, Step::Done | Step::Failed),
            _ => self.step.is_over(),
        }
    }

    /// Whether one worker to whom nothing bad happens brings the upload to its end, from here.
    fn settles(mut self, removed: bool) -> bool {
        while self.flying > 0 {
            self.flying -= 1;
            self.complete();
        }
        let waits = self.step == Step::Failed && self.given_up_late && self.multipart == Multipart::Open;
        let whole = self.step == Step::Open || self.object || waits;
        for _ in 0..10 {
            self.work_past_the_deadline(Fate::Fine);
        }
        match self.step {
            Step::Done => self.object && self.rows == 1 && self.told && (self.shown == Some(true) || removed),
            Step::Expired | Step::Aborted => {
                (!whole || removed) && self.rows == 0 && self.shown == Some(false)
            }
            _ => false,
        }
    }
}

struct Completion(Bad);

impl Completion {
    /// Whether the row was removed at some time.
    fn removed(&self, world: &World) -> bool {
        world.left.removals < self.0.removals
    }
}

impl Model for Completion {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.0)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for who in 0..2 {
            match world.workers[who] {
                Worker::Idle => {
                    let aims = [Aim::Complete, Aim::Expire, Aim::Abort];
                    actions.extend(aims.map(|aim| Action::Claim(who, aim)));
                }
                Worker::Owns { .. } => {
                    let fates = [Fate::Fine, Fate::LostAnswer, Fate::Delayed, Fate::Refused, Fate::Hidden];
                    actions.extend(fates.map(|fate| Action::Act(who, fate)));
                    actions.push(Action::Crash(who));
                }
            }
        }
        actions.extend([Aim::Complete, Aim::Expire, Aim::Abort].map(Action::ClaimUnheard));
        if world.lease {
            actions.push(Action::Lapse);
        }
        if !world.late {
            actions.push(Action::DeadlinePasses);
        }
        if world.flying > 0 {
            actions.push(Action::Lands);
        }
        if world.step == Step::Failed {
            actions.push(Action::Reopen);
        }
        if world.left.removals > 0 || world.row == Row::Gone {
            actions.push(if world.row == Row::There { Action::Remove } else { Action::Restore });
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        world.next(action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always("an upload is completed once", |_, w: &World| w.made <= 1 && w.rows <= 1),
            Property::always("a row is active only when its object is there", |_, w: &World| {
                w.rows == 0 || w.object
            }),
            Property::always(
                "what is announced was told, and what is done is shown",
                |model: &Self, w: &World| match w.step {
                    Step::Recorded => w.rows == 1,
                    Step::Announced => w.rows == 1 && w.told,
                    // An owner who stood still may show an end that its successor, who saw the row again, went past: the
                    // sweep puts that right.
                    Step::Done => w.rows == 1 && w.told && (w.shown == Some(true) || model.removed(w)),
                    _ => w.rows == 0,
                },
            ),
            Property::always("nothing whose object is there ends without it", |model: &Self, w: &World| {
                !matches!(w.step, Step::Expired | Step::Aborted) || !w.object || model.removed(w)
            }),
            // An object store knows no fences: a request that comes late, or from an owner who stood still, may be done
            // between the look of its successor and the verdict. Then the sweep or a resume finds the object.
            Property::always(
                "nothing is given up whose object a look would have shown",
                |model: &Self, w: &World| {
                    let late = w.left.delays < model.0.delays || w.left.lapses < model.0.lapses;
                    let hidden = w.left.hidden < model.0.hidden;
                    w.step != Step::Failed || !w.object || late || hidden || model.removed(w)
                },
            ),
            Property::always("on a look that failed nothing is done", |_, w: &World| {
                w.workers.iter().all(|worker| match worker {
                    Worker::Owns { known, .. } if known.seen == Seen::Hidden => {
                        matches!(decide(known), Next::Wait | Next::Fail(Flaw::Late))
                    }
                    _ => true,
                })
            }),
            Property::always("nobody waits for a look for ever", |_, w: &World| w.gives_up_blindly()),
            Property::always("from everywhere somebody brings it to its end", |model: &Self, w: &World| {
                w.settles(model.removed(w))
            }),
        ];
        all.extend([
            Property::sometimes("it is done", |_, w: &World| w.step == Step::Done),
            Property::sometimes("it is called off", |_, w: &World| w.step == Step::Aborted),
            Property::sometimes("it is reopened and done", |_, w: &World| {
                w.step == Step::Done && w.left.reopens == 0
            }),
            Property::sometimes("an upload about to end is rescued", |_, w: &World| {
                let rescued = |worker: &Worker| match worker {
                    Worker::Owns { known, .. } => known.step == Step::Completing && known.cut == Did::Done,
                    Worker::Idle => false,
                };
                w.workers.iter().any(rescued)
            }),
        ]);
        if self.0.delays > 0 {
            all.push(Property::sometimes(
                "it is done after a request that was given up for lost",
                |_, w: &World| w.step == Step::Done && w.left.delays == 0,
            ));
        }
        if self.0.removals > 0 {
            all.extend([
                Property::sometimes("it is done after its row was removed and put back", |_, w: &World| {
                    w.step == Step::Done && w.left.removals == 0 && w.left.reopens == 0 && w.row == Row::There
                }),
                Property::sometimes("an object without a row is left to lie", |_, w: &World| {
                    w.step == Step::Aborted && w.object
                }),
            ]);
        }
        let expires = |_: &Self, w: &World| w.step == Step::Expired;
        // What has all of its parts and is not refused is completed, however late.
        if self.0.refusals + self.0.removals > 0 {
            all.push(Property::sometimes("it expires", expires));
        } else {
            all.push(Property::always("it does not expire", |_, w: &World| w.step != Step::Expired));
        }
        if self.0.hidden > 0 {
            all.push(Property::sometimes("it is done after looks that failed", |_, w: &World| {
                w.step == Step::Done && w.left.hidden == 0 && w.left.reopens == 0
            }));
        }
        all
    }
}

fn explore(left: Bad) {
    let checker = Completion(left).checker().threads(2).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    assert!(checker.unique_state_count() > 10_000, "the model explores next to nothing");
    checker.assert_properties();
}

#[test]
fn however_two_workers_meet_an_upload_ends_once_and_nothing_is_lost() {
    let few = Bad { crashes: 1, lost_answers: 1, delays: 1, refusals: 1, reopens: 1, ..Bad::default() };
    explore(Bad { lapses: 2, ..few });
}

#[test]
fn a_row_that_is_removed_at_any_moment_keeps_no_upload_from_its_end() {
    explore(Bad { lost_answers: 1, delays: 1, lapses: 1, reopens: 1, removals: 1, ..Bad::default() });
}

#[test]
fn looks_that_fail_at_any_moment_complete_and_end_nothing() {
    explore(Bad { lost_answers: 1, delays: 1, lapses: 1, reopens: 1, hidden: 2, ..Bad::default() });
}

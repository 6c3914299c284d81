//! What comes next on the way of an upload to its end. A plain function; no I/O, no clock.
//!
//! Whoever owns an upload knows where it stands in the ledger and what it has learned itself since it took it. From
//! that follows the one thing to do. A crash forgets what was learned and nothing else, so everything here may be done
//! again by the next owner, who begins with a look at the object.

use crate::ledger::Step;

/// What the owner of an upload knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Known {
    /// Where the upload stands in the ledger.
    pub step: Step,
    /// Whether somebody else may have asked the object store for the object already.
    pub begun: Begun,
    /// What the object store answered when it was asked to put the object together.
    pub asked: Asked,
    /// What a look at the object showed, after anything that could have changed it.
    pub seen: Seen,
    /// Whether its row in `nodes` is there.
    pub row: Row,
    /// Whether the multipart upload of one that ends is aborted.
    pub cut: Did,
    /// Whether the event is told.
    pub told: Did,
    /// Whether the store shows how it ended, and no bytes of chunks are left.
    pub shown: Did,
    /// Whether its deadline has passed.
    pub late: bool,
}

/// Whether this owner is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Begun {
    /// Nobody can have asked before.
    Now,
    /// Taken over: what the former owner did is not known.
    Before,
}

/// What the object store said when it was asked to put the object together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Asked {
    /// It was not asked by this owner.
    Not,
    /// It is done. Only a look proves it.
    Done,
    /// It may or may not be done; asking again may help.
    Unsure,
    /// There is no such multipart upload: completed or aborted before.
    Gone,
    /// It will never do it.
    Refused,
}

/// What a look at the object showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Seen {
    /// Nobody looked yet.
    Not,
    /// Nothing, or somebody else's object.
    Absent,
    /// This upload's object, with every byte.
    Ours,
    /// This upload's object with another size than its parts have.
    Misfit,
    /// The object store let nobody look: it is away, or refuses. What is there is not known.
    Hidden,
}

/// Whether the row in `nodes` that an upload is for is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Row {
    /// Nobody saw that it is not.
    There,
    /// Another program removed it.
    Gone,
}

/// Whether this owner has done it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Did {
    /// Not yet.
    Not,
    /// Done.
    Done,
}

/// Why an upload is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// The multipart upload is gone and there is no object: its parts are lost.
    PartsLost,
    /// The object store will never put it together.
    Refused,
    /// The object has another size than its parts.
    Misfit,
    /// It did not work until the deadline.
    Late,
    /// The object is there, and its row in `nodes` was removed by somebody.
    RowGone,
}

/// The one thing to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Next {
    /// Look at the object.
    Look,
    /// Ask the object store to put it together.
    Ask,
    /// Write down that the object is there.
    Prove,
    /// Make the row ACTIVE and put the event into the outbox, in one transaction.
    Record,
    /// Tell the event.
    Tell,
    /// Write down that it was told.
    Told,
    /// Let the store show how it ended, and remove what is left of its bytes.
    Show,
    /// Write down that nothing is left to do.
    Finish,
    /// The object is there after all: go on to complete it.
    Rescue,
    /// Abort the multipart upload.
    Cut,
    /// Write down that nothing of it is left.
    End,
    /// Give it up; it can be reopened.
    Fail(Flaw),
    /// Let go of it for a while: trying later may help.
    Wait,
    /// Nothing: it is not its owner's any more.
    Stop,
}

impl Known {
    /// What somebody knows who has just become the owner of an upload that stands at `step`.
    pub const fn on_taking(step: Step, begun: Begun, late: bool) -> Self {
        Self {
            step,
            begun,
            asked: Asked::Not,
            seen: Seen::Not,
            row: Row::There,
            cut: Did::Not,
            told: Did::Not,
            shown: Did::Not,
            late,
        }
    }

    /// The object store was asked, so what was seen before says nothing any more.
    #[must_use]
    pub const fn after_asking(self, asked: Asked) -> Self {
        Self { asked, seen: Seen::Not, ..self }
    }

    /// The multipart upload was aborted, unless somebody had completed it just before: that is to be looked at.
    #[must_use]
    pub const fn after_cutting(self) -> Self {
        Self { cut: Did::Done, seen: Seen::Not, ..self }
    }

    /// The ledger has it at another step now.
    #[must_use]
    pub const fn at(self, step: Step) -> Self {
        Self { step, ..self }
    }
}

/// What is to be done by the owner who knows this.
pub const fn decide(known: &Known) -> Next {
    match known.step {
        Step::Completing => completing(known),
        Step::Proved => match known.row {
            Row::There => Next::Record,
            Row::Gone => Next::Fail(Flaw::RowGone),
        },
        Step::Recorded => match known.told {
            Did::Not => Next::Tell,
            Did::Done => Next::Told,
        },
        Step::Announced => match known.shown {
            Did::Not => Next::Show,
            Did::Done => Next::Finish,
        },
        Step::Expiring | Step::Aborting => ending(known),
        Step::Created | Step::Open | Step::Failed | Step::Done | Step::Expired | Step::Aborted => Next::Stop,
    }
}

const fn completing(known: &Known) -> Next {
    match (known.seen, known.asked, known.begun) {
        (Seen::Ours, _, _) => Next::Prove,
        (Seen::Misfit, _, _) => Next::Fail(Flaw::Misfit),
        // It may be there or not. Nobody waits for ever to learn it, and whoever reopens it begins with a look.
        (Seen::Hidden, _, _) if known.late => Next::Fail(Flaw::Late),
        (Seen::Hidden, _, _) => Next::Wait,
        // Whoever owned it before may have completed it.
        (Seen::Not, Asked::Not, Begun::Before) => Next::Look,
        (Seen::Not, Asked::Not, Begun::Now) => Next::Ask,
        // No answer proves anything, neither yes nor no.
        (Seen::Not, _, _) => Next::Look,
        (Seen::Absent, Asked::Not, _) => Next::Ask,
        (Seen::Absent, Asked::Gone, _) => Next::Fail(Flaw::PartsLost),
        (Seen::Absent, Asked::Refused, _) => Next::Fail(Flaw::Refused),
        // A store that says done and shows nothing: the next owner looks, asks again and is told that it is gone.
        (Seen::Absent, Asked::Done, _) => Next::Wait,
        (Seen::Absent, Asked::Unsure, _) if known.late => Next::Fail(Flaw::Late),
        (Seen::Absent, Asked::Unsure, _) => Next::Wait,
    }
}

const fn ending(known: &Known) -> Next {
    match (known.seen, known.row, known.cut, known.shown) {
        (Seen::Not, _, _, _) => Next::Look,
        // What may be whole is neither cut nor ended.
        (Seen::Hidden, _, _, _) => Next::Wait,
        (Seen::Ours, Row::There, _, _) => Next::Rescue,
        // An object that nobody's row leads to cannot be completed. It stays: bytes that are whole are not ours to delete.
        (Seen::Ours, Row::Gone, Did::Not, _) | (Seen::Absent | Seen::Misfit, _, Did::Not, _) => Next::Cut,
        (_, _, Did::Done, Did::Not) => Next::Show,
        (_, _, Did::Done, Did::Done) => Next::End,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(step: Step) -> Known {
        Known::on_taking(step, Begun::Now, false)
    }

    #[test]
    fn an_answer_alone_never_completes_or_fails_an_upload() {
        for asked in [Asked::Done, Asked::Unsure, Asked::Gone, Asked::Refused] {
            for late in [false, true] {
                let known = Known { late, ..known(Step::Completing).after_asking(asked) };
                assert_eq!(decide(&known), Next::Look, "{asked:?}");
            }
        }
    }

    #[test]
    fn whoever_takes_a_completion_over_looks_before_it_asks() {
        let known = Known::on_taking(Step::Completing, Begun::Before, false);
        assert_eq!(decide(&known), Next::Look);
        assert_eq!(decide(&Known { seen: Seen::Absent, ..known }), Next::Ask);
        assert_eq!(decide(&Known { seen: Seen::Ours, ..known }), Next::Prove);
    }

    #[test]
    fn nothing_is_aborted_without_a_look_before_and_after() {
        for step in [Step::Expiring, Step::Aborting] {
            let mut known = known(step);
            assert_eq!(decide(&known), Next::Look);
            known.seen = Seen::Absent;
            assert_eq!(decide(&known), Next::Cut);
            known = known.after_cutting();
            assert_eq!(decide(&known), Next::Look);
            known.seen = Seen::Ours;
            assert_eq!(decide(&known), Next::Rescue);
        }
    }

    #[test]
    fn without_its_row_an_object_is_neither_recorded_nor_rescued() {
        let proved = Known { row: Row::Gone, ..known(Step::Proved) };
        assert_eq!(decide(&proved), Next::Fail(Flaw::RowGone));
        for step in [Step::Expiring, Step::Aborting] {
            let mut known = Known { seen: Seen::Ours, row: Row::Gone, ..known(step) };
            assert_eq!(decide(&known), Next::Cut);
            known = Known { seen: Seen::Ours, ..known.after_cutting() };
            assert_eq!(decide(&known), Next::Show);
            known.shown = Did::Done;
            assert_eq!(decide(&known), Next::End);
        }
    }

    #[test]
    fn on_a_look_that_failed_nothing_is_done_but_to_wait_or_past_the_deadline_to_give_up() {
        let all = [Asked::Not, Asked::Done, Asked::Unsure, Asked::Gone, Asked::Refused];
        for (asked, begun) in all.into_iter().flat_map(|asked| [(asked, Begun::Now), (asked, Begun::Before)])
        {
            let mut known = Known { seen: Seen::Hidden, asked, begun, ..known(Step::Completing) };
            assert_eq!(decide(&known), Next::Wait, "{known:?}");
            known.late = true;
            assert_eq!(decide(&known), Next::Fail(Flaw::Late), "{known:?}");
        }
        for (step, late) in [(Step::Expiring, true), (Step::Aborting, false)] {
            for (row, cut) in [(Row::There, Did::Not), (Row::Gone, Did::Not), (Row::Gone, Did::Done)] {
                for shown in [Did::Not, Did::Done] {
                    let known = Known { seen: Seen::Hidden, row, cut, shown, late, ..known(step) };
                    assert_eq!(decide(&known), Next::Wait, "{known:?}");
                }
            }
        }
    }

    #[test]
    fn a_wrong_size_is_never_proved() {
        for asked in [Asked::Not, Asked::Done, Asked::Unsure, Asked::Gone, Asked::Refused] {
            let known = Known { seen: Seen::Misfit, asked, ..known(Step::Completing) };
            assert_eq!(decide(&known), Next::Fail(Flaw::Misfit));
        }
    }
}

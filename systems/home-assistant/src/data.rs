//! What the backend serves: users, the questions of a forum, and devices that take their time. Kept in this process's
//! memory, for it is not what this system is about.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Questions kept at once; the oldest leaves first.
const MAX_QUESTIONS: usize = 10_000;
/// Longest title.
pub(crate) const MAX_TITLE_BYTES: usize = 200;
/// The one password of all users.
const PASSWORD: &str = "correct horse";

/// Who may log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct User {
    pub(crate) id: u32,
    pub(crate) name: &'static str,
}

/// The users of the house.
pub(crate) const USERS: [User; 4] = [
    User { id: 1, name: "ada" },
    User { id: 2, name: "brahms" },
    User { id: 3, name: "curie" },
    User { id: 4, name: "dirac" },
];

/// What a caller logs in with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Login {
    pub(crate) name: String,
    pub(crate) password: String,
}

/// The user, when name and password are right.
pub(crate) fn login(login: &Login) -> Option<&'static User> {
    USERS.iter().find(|user| user.name == login.name).filter(|_| login.password == PASSWORD)
}

/// What a caller writes into the forum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    pub(crate) title: String,
}

/// The forum; bounded.
#[derive(Debug, Default)]
pub(crate) struct Forum {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    last: u64,
    questions: BTreeMap<u64, Question>,
}

impl Forum {
    /// Adds a question; its number.
    pub(crate) fn ask(&self, question: Question) -> u64 {
        let mut held = self.held.lock();
        held.last += 1;
        let id = held.last;
        held.questions.insert(id, question);
        if held.questions.len() > MAX_QUESTIONS {
            held.questions.pop_first();
        }
        id
    }

    /// Puts a question in the place of one that may or may not be there.
    pub(crate) fn put(&self, id: u64, question: Question) {
        let mut held = self.held.lock();
        held.last = held.last.max(id);
        held.questions.insert(id, question);
        if held.questions.len() > MAX_QUESTIONS {
            held.questions.pop_first();
        }
    }

    /// A question.
    pub(crate) fn question(&self, id: u64) -> Option<Question> {
        self.held.lock().questions.get(&id).cloned()
    }

    /// Takes a question away; whether it was there.
    pub(crate) fn remove(&self, id: u64) -> bool {
        self.held.lock().questions.remove(&id).is_some()
    }

    /// The newest ones.
    pub(crate) fn newest(&self, count: usize) -> Vec<(u64, Question)> {
        let held = self.held.lock();
        held.questions.iter().rev().take(count).map(|(id, question)| (*id, question.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_forum_forgets_its_oldest_question() {
        let forum = Forum::default();
        for n in 0..=MAX_QUESTIONS {
            forum.ask(Question { title: n.to_string() });
        }
        assert_eq!(forum.question(1), None);
        assert_eq!(forum.newest(1)[0].1.title, MAX_QUESTIONS.to_string());
        assert_eq!(forum.newest(usize::MAX).len(), MAX_QUESTIONS);
    }

    #[test]
    fn only_name_and_password_together_let_in() {
        let with =
            |name: &str, password: &str| login(&Login { name: name.into(), password: password.into() });
        assert_eq!(with("curie", PASSWORD), Some(&USERS[2]));
        assert_eq!(with("curie", ""), None);
        assert_eq!(with("nobody", PASSWORD), None);
    }
}

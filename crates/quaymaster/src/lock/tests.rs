//! What an answer tells of a holder, and what it does not.

use super::answer::owner;

#[test]
fn an_owners_name_is_told_and_never_its_token() {
    let random = "A".repeat(22);
    assert_eq!(owner(format!("web-1.{random}").as_bytes()).as_deref(), Some("web-1"));
    assert_eq!(owner(format!("web.eu.{random}").as_bytes()).as_deref(), Some("web.eu"));
    assert_eq!(owner(random.as_bytes()), None, "no name was given");
    assert_eq!(owner(b""), None, "the lock is free for another waiter");
    for foreign in ["secret", "host.example.com", "a.b", &format!(".{random}")] {
        assert_eq!(owner(foreign.as_bytes()), None, "{foreign:?}");
    }
}

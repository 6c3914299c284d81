//! Lists of calls on guide pages, between `<!-- calls: queue -->` and `<!-- end of calls -->`: the calls of a kind with
//! what they do, or those that a role adds. Fields, bounds and answers stand in `docs/calls.md` only.

use quaymaster::schema::Kind;

use crate::call::{Needs, OPERATIONS, Operation};

/// The list that this word names: a kind's or a role's.
fn list(of: &str) -> Option<String> {
    if let Some(kind) = Kind::ALL.iter().find(|kind| kind.name() == of) {
        let row = |operation: &Operation| {
            format!("| {} | {} |\n", link(operation, operation.verb), operation.about)
        };
        let rows: String = OPERATIONS.iter().filter(|operation| operation.kind == *kind).map(row).collect();
        return Some(format!("| call | what it does |\n|---|---|\n{rows}"));
    }
    let role = Needs::ALL.into_iter().find(|role| role.name() == of)?;
    let own = OPERATIONS.iter().filter(|operation| operation.needs == role);
    let links: Vec<String> = own.map(|operation| link(operation, &name(operation))).collect();
    Some(format!("{}.\n", links.join(", ")))
}

fn name(operation: &Operation) -> String {
    format!("{} {}", operation.kind, operation.verb)
}

/// Where `docs/calls.md` has the call.
fn link(operation: &Operation, shown: &str) -> String {
    format!("[`{shown}`](calls.md#{})", name(operation).replace(' ', "-"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::expect_used, reason = "a page that cannot be read or written is a failed test")]

    use std::path::{Path, PathBuf};

    use super::*;

    const BEGIN: &str = "<!-- calls: ";
    const END: &str = "<!-- end of calls -->";

    /// The pages with their texts, but for the two that are made whole.
    fn pages() -> Vec<(PathBuf, String)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let entries =
            std::fs::read_dir(folder).expect("the pages").map(|entry| entry.expect("a page").path());
        let by_hand = entries.filter(|path| {
            path.extension().is_some_and(|ext| ext == "md")
                && !path.ends_with("calls.md")
                && !path.ends_with("schema.md")
        });
        by_hand.map(|path| (path.clone(), std::fs::read_to_string(path).expect("a page"))).collect()
    }

    /// The page with each list made anew, and the page without them.
    fn made(page: &str) -> (String, String) {
        let mut parts = page.split(BEGIN);
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold((first.clone(), first), |(made, rest), part| {
            let (of, after) = part.split_once(" -->\n").expect("a list's name");
            let (_, after) = after.split_once(END).expect("a list's end");
            let list = list(of).expect("a kind or a role");
            (format!("{made}{BEGIN}{of} -->\n{list}{END}{after}"), rest + after)
        })
    }

    #[test]
    fn the_page_says_which_calls_there_are() {
        let mut lists = 0;
        for (path, mut page) in pages() {
            let (made, _) = made(&page);
            if std::env::var_os("QUAYMASTER_WRITE_DOCS").is_some() {
                std::fs::write(&path, &made).expect("the page is written");
                page.clone_from(&made);
            }
            lists += page.matches(BEGIN).count();
            let line = page.lines().zip(made.lines()).take_while(|(page, made)| page == made).count() + 1;
            assert!(
                page == made,
                "{}:{line}: QUAYMASTER_WRITE_DOCS=1 with this test writes the list anew",
                path.display()
            );
        }
        assert!(lists > 5, "{lists} lists");
    }

    #[test]
    fn no_table_by_hand_lists_calls_or_fields() {
        let mut found = Vec::new();
        for (path, page) in pages() {
            let (_, rest) = made(&page);
            let lines: Vec<&str> = rest.lines().collect();
            for pair in lines.windows(2).filter(|pair| pair[1].starts_with("|--")) {
                let first = pair[0].split('|').nth(1).unwrap_or_default();
                let words = first.split(|c: char| !c.is_alphabetic());
                if words.into_iter().any(|word| matches!(word, "call" | "calls" | "field" | "fields")) {
                    found.push(format!("{}: {}", path.display(), pair[0]));
                }
            }
        }
        assert!(found.is_empty(), "declarations say these, in calls.md and schema.md:\n{}", found.join("\n"));
    }

    #[test]
    fn a_kind_and_a_role_have_their_calls_with_links() {
        let queue = list("queue").expect("a kind");
        assert!(
            queue.contains("\n| [`push`](calls.md#queue-push) | Put jobs at the end of the queue |\n"),
            "{queue}"
        );
        let operate = list("operate").expect("a role");
        assert!(
            operate.contains("[`queue trim`](calls.md#queue-trim)") && !operate.contains("push"),
            "{operate}"
        );
        assert_eq!(list("quay"), None);
    }
}

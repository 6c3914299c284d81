//! Every call that the table of the document's operations names is there.

use std::collections::BTreeSet;

use quaymaster_server::command::commands;

#[test]
fn every_operation_of_the_document_has_its_call() {
    let known: BTreeSet<String> =
        commands().map(|command| format!("{}.{}", command.kind().name(), command.verb())).collect();
    let page = include_str!("../../DOCUMENT.md");
    let words: BTreeSet<&str> = page.split('`').skip(1).step_by(2).collect();
    let kinds: BTreeSet<&str> =
        known.iter().filter_map(|call| call.split_once('.')).map(|(kind, _)| kind).collect();
    let mut named = 0;
    for word in words {
        let Some((kind, verb)) = word.split_once('.') else { continue };
        // `queue.full` is a code.
        if kinds.contains(kind) && verb != "full" {
            assert!(known.contains(word), "the table names {word}, which is no call");
            named += 1;
        }
    }
    assert!(named >= 20, "{named}");
}

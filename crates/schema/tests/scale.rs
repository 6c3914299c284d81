//! Large files, right and wrong, are answered in a length and a time that follow their size.

use std::fmt::Write as _;

use quaymaster_schema::{Diagnostic, Severity, Source, load};

/// The most that is said of one severity, the summary included.
const MOST: usize = 1001;

fn limit(out: &mut String, n: usize, key: &str) {
    let _ = write!(
        out,
        "[limit.l{n}]\nkey = \"{key}\"\nalgorithm = \"token_bucket\"\nlimit = 1\nwindow = \"1s\"\n"
    );
}

fn diagnostics(text: &str) -> Vec<Diagnostic> {
    let loaded = load(&[Source { name: "s.toml", text }], &|_| None);
    let failed = loaded.diagnostics.iter().any(|d| d.severity == Severity::Error);
    assert_eq!(loaded.schema.is_none(), failed);
    loaded.diagnostics
}

fn length(found: &[Diagnostic]) -> usize {
    found.iter().map(|diagnostic| diagnostic.to_string().len()).sum()
}

#[test]
fn two_thousand_limits_that_differ_in_their_last_word_load() {
    let mut text = String::new();
    (0..2000).for_each(|n| limit(&mut text, n, &format!("rl:{{id}}:n{n:04}")));
    assert_eq!(diagnostics(&text), []);
}

#[test]
fn two_thousand_limits_that_differ_in_a_word_between_values_load() {
    let mut text = String::new();
    (0..2000)
        .for_each(|n| limit(&mut text, n, &format!("rl:{{a}}:{{b}}:{{c}}:{{d}}:{{e}}:n{n}:{{id}}:{{x}}")));
    assert_eq!(diagnostics(&text), []);
}

#[test]
fn a_thousand_resources_with_one_key_are_one_problem() {
    let mut text = String::new();
    (0..1000).for_each(|n| limit(&mut text, n, "rl:{id}"));
    let found = diagnostics(&text);
    assert_eq!(found.iter().map(|d| (d.code, d.line)).collect::<Vec<_>>(), [("key-overlap", 7)]);
    assert!(found[0].message.contains("[limit.l0]") && found[0].message.contains("998 more"), "{}", found[0]);
    assert!(length(&found) < 1000);
}

#[test]
fn a_key_of_two_types_is_named_once_for_each_type() {
    let mut text = String::new();
    (0..20).for_each(|n| limit(&mut text, n, "rl:{id}"));
    for n in 0..20 {
        let _ = write!(text, "[key.k{n}]\nkey = \"rl:{{name}}\"\ntype = \"list\"\nttl = \"1s\"\n");
    }
    let found = diagnostics(&text);
    assert_eq!(found.iter().map(|d| d.code).collect::<Vec<_>>(), ["key-overlap", "two-types"]);
}

#[test]
fn patterns_that_all_meet_each_other_are_refused_without_comparing_them_all() {
    let mut text = String::new();
    for n in 0..4000 {
        let _ = write!(text, "[cache.a{n}]\nkey = \"x{n}:{{id}}\"\nttl = \"1s\"\n");
        let _ = write!(text, "[cache.b{n}]\nkey = \"{{id}}:y{n}\"\nttl = \"1s\"\n");
    }
    let found = diagnostics(&text);
    assert!(
        found.iter().any(|d| d.code == "key-overlap" && d.message.contains("not compared")),
        "{}",
        found[0]
    );
    assert!(found.len() <= 2 * MOST);
}

#[test]
fn what_is_said_of_a_file_of_mistakes_is_bounded_and_counts_the_rest() {
    let one_line = |items: usize| {
        let items: Vec<String> = (0..items).map(|n| format!("a{n:05}={{}}")).collect();
        format!("limit = {{{}}}\n", items.join(","))
    };
    for text in ["= \n".repeat(130_000), one_line(40_000)] {
        let found = diagnostics(&text);
        assert_eq!(found.len(), MOST);
        let last = found.last().map(ToString::to_string).unwrap_or_default();
        assert!(last.contains("more errors"), "{last}");
        assert!(length(&found) < 400_000, "{}", length(&found));
    }
    let found = diagnostics(&one_line(500));
    let missing = found.iter().filter(|d| d.code == "missing-field").count();
    assert_eq!((missing, found.len()), (MOST, MOST), "the last one counts the rest");
    assert_eq!((found[0].line, found[0].column), (1, 10));
    assert_eq!((found[4].line, found[4].column), (1, 20), "four problems a table");
}

#[test]
fn warnings_never_crowd_out_the_error() {
    let mut text = String::new();
    for n in 0..3000 {
        let _ = writeln!(text, "[queue.q{n}]");
    }
    text.push_str("[cache.c]\nkey = \"c:{id}\"\n");
    let found = diagnostics(&text);
    assert_eq!(
        found.iter().filter(|d| d.severity == Severity::Error).map(|d| d.code).collect::<Vec<_>>(),
        ["no-ttl"]
    );
    assert_eq!(found.len(), MOST + 1);
    assert!(found.iter().any(|d| d.message.contains("2000 more warnings")));
}

#[test]
fn a_message_stays_short_whatever_the_file_holds() {
    let long = "x".repeat(300_000);
    for text in [
        format!("[cache.c]\nkey = \"c:{{id}}\"\nttl = \"1s\"\nfields = {{ {long} = 1 }}\n"),
        format!("[cache.c]\nkey = \"c:{{id}}\"\nttl = \"1s\"\n{long} = 1\n"),
        format!("[cache.c]\n{long} = 1\n{long} = 2\n"),
        format!("{long} = 1\n"),
        format!("[schema]\nname = \"{long}\"\nprefix = \"{long}\"\n"),
        format!("[batch.b]\nby = \"{long}\"\nto = \"{long}\"\nwindow = \"1m\"\n"),
    ] {
        let found = diagnostics(&text);
        assert!(!found.is_empty() && length(&found) < 8000, "{}", length(&found));
    }
    let mut text = "[schema]\neviction = \"allkeys-lru\"\n".to_owned();
    (0..2000).for_each(|n| limit(&mut text, n, &format!("rl{n}:{{id}}")));
    let found = diagnostics(&text);
    assert_eq!(found.iter().map(|d| d.code).collect::<Vec<_>>(), ["eviction"]);
    assert!(length(&found) < 3000 && found[0].message.contains("more"), "{}", found[0]);
}

//! Nothing a file or an environment holds makes the loader panic.

mod common;

use proptest::prelude::*;
use quaymaster_schema::{BUNDLED, OWN_PREFIX, Severity, Source, docs, load};

fn survives(text: &str, value: &str) -> Result<(), TestCaseError> {
    let loaded =
        load(&[Source { name: "hostile.toml", text }], &|name| name.contains('_').then(|| value.to_owned()));
    let failed = loaded.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    prop_assert_eq!(loaded.schema.is_none(), failed);
    for diagnostic in &loaded.diagnostics {
        prop_assert!(diagnostic.line >= 1 && diagnostic.line <= text.matches('\n').count() + 1);
        prop_assert!(diagnostic.message.len() < 16_000);
    }
    if let Some(schema) = loaded.schema {
        prop_assert!(docs(&schema, OWN_PREFIX).contains("# Access"));
        prop_assert!(
            schema.explain(value.as_bytes()).is_none_or(|explained| !explained.resource.keys.is_empty())
        );
    }
    Ok(())
}

/// Words that mean something to the loader, in no order.
fn soup() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        prop::sample::select(vec![
            "[limit.a]\n",
            "[queue.q]\n",
            "[batch.b]\n",
            "[run.r]\n",
            "[stats.s]\n",
            "[upload.u]\n",
            "[guard.g]\n",
            "[event.e]\n",
            "[schema]\n",
            "key = ",
            "ttl = ",
            "limit = ",
            "window = ",
            "by = ",
            "to = ",
            "prefix = ",
            "\"a:{x}:current\"\n",
            "\"{\"\n",
            "\"never\"\n",
            "\"1h\"\n",
            "\"{x}:{hour}\"\n",
            "10\n",
            "-1\n",
            "1e400\n",
            "99999999999999999999\n",
            "{ env = \"A_B\" }\n",
            "{ env = 1, unit = \"x\" }\n",
            "[]\n",
            "[[]]\n",
            "true\n",
            "1979-05-27\n",
            "colocate = ",
            "push = ",
            "retry = ",
            "{}\n",
            "limits = ",
            "[\"a\", 1]\n",
            "fields = ",
            "state_ttl = ",
            "hour_ttl = ",
            "items = ",
            "\"\"\n",
            "channel = ",
            "colon = ",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,6}",
    ];
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

/// A bundled schema with a few pieces cut out, doubled or replaced.
fn mutated() -> impl Strategy<Value = String> {
    let edit =
        (any::<prop::sample::Index>(), 0usize..40, "\\PC{0,3}|[\\[\\]{}\":=,\n0-9a-z]{0,4}", any::<bool>());
    (0..BUNDLED.len(), prop::collection::vec(edit, 1..6)).prop_map(|(which, edits)| {
        let mut text: Vec<char> = BUNDLED[which].1.chars().collect();
        for (at, length, insert, double) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + length).min(text.len());
            let cut: Vec<char> = text[at..end].to_vec();
            let put = if double { [cut.clone(), cut].concat() } else { insert.chars().collect() };
            text.splice(at..end, put);
        }
        text.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(common::cases(600))]

    #[test]
    fn any_text_is_answered(text in "(?s).{0,200}", value in "\\PC{0,20}") {
        survives(&text, &value)?;
    }

    #[test]
    fn a_soup_of_meaningful_words_is_answered(text in soup(), value in prop_oneof![Just("1".to_owned()), "\\PC{0,8}"]) {
        survives(&text, &value)?;
    }

    #[test]
    fn a_mutilated_schema_is_answered(text in mutated(), value in prop_oneof![Just("1".to_owned()), "\\PC{0,8}"]) {
        survives(&text, &value)?;
    }
}

#[test]
fn a_deep_and_a_wide_file_are_answered() {
    let deep = format!("[limit.a]\nkey = {}{}\n", "[".repeat(5000), "]".repeat(5000));
    let loaded = load(&[Source { name: "deep", text: &deep }], &|_| None);
    assert!(loaded.schema.is_none());
    let cache = |n| format!("[cache.c{n}]\nkey = \"app:c{n}:{{id}}\"\nttl = \"1m\"\n");
    let wide = (0..300).map(cache).collect::<Vec<_>>().concat();
    let loaded = load(&[Source { name: "wide", text: &wide }], &|_| None);
    assert_eq!(loaded.schema.map(|schema| schema.resources().count()), Some(300));
}

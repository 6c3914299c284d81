//! Every lint has a schema that triggers it and one that does not.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use quaymaster_schema::{Diagnostic, LINTS, Loaded, Severity, Source, load};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lints")
}

fn env(name: &str) -> Option<String> {
    match name {
        "HOLDS_A_WORD" => Some("word".to_owned()),
        "HOLDS_SEVEN" => Some("7".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

/// Loads `<code>.<which>.toml`, and `<code>.with.toml` before it where there is one.
fn fixture(code: &str, which: &str) -> Loaded {
    let file = format!("{code}.{which}.toml");
    let text =
        std::fs::read_to_string(folder().join(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let text = padded(text);
    let with = std::fs::read_to_string(folder().join(format!("{code}.with.toml"))).ok();
    let mut sources: Vec<Source<'_>> = with.iter().map(|text| Source { name: "with.toml", text }).collect();
    sources.push(Source { name: &file, text: &text });
    load(&sources, &env)
}

/// Fills a fixture that begins with `# padded to N bytes` up with a comment.
fn padded(mut text: String) -> String {
    let head = text.lines().next().and_then(|line| line.strip_prefix("# padded to ")?.strip_suffix(" bytes"));
    if let Some(size) = head.map(|size| size.parse::<usize>().unwrap()) {
        text.push('#');
        text.push_str(&"x".repeat(size - text.len()));
    }
    text
}

fn one(text: &str) -> Vec<Diagnostic> {
    load(&[Source { name: "s.toml", text }], &env).diagnostics
}

#[test]
fn every_lint_is_triggered_by_its_bad_fixture_and_not_by_its_good_one() {
    for lint in LINTS {
        let bad = fixture(lint.code, "bad");
        let found: Vec<&Diagnostic> = bad.diagnostics.iter().filter(|d| d.code == lint.code).collect();
        assert!(!found.is_empty(), "{}: {:?}", lint.code, bad.diagnostics);
        assert!(found.iter().all(|d| d.severity == lint.severity && d.line >= 1 && d.column >= 1));
        let good = fixture(lint.code, "good");
        assert!(good.schema.is_some(), "{}: {:?}", lint.code, good.diagnostics);
        assert!(
            good.diagnostics.iter().all(|d| d.code != lint.code),
            "{}: {:?}",
            lint.code,
            good.diagnostics
        );
    }
}

#[test]
fn a_bad_fixture_triggers_nothing_else_of_consequence() {
    for lint in LINTS {
        let bad = fixture(lint.code, "bad").diagnostics;
        let others: Vec<&Diagnostic> =
            bad.iter().filter(|d| d.code != lint.code && d.severity == Severity::Error).collect();
        assert!(others.is_empty(), "{}: {others:?}", lint.code);
    }
}

#[test]
fn every_fixture_has_a_lint_and_codes_are_kebab_case() {
    let codes: BTreeSet<&str> = LINTS.iter().map(|lint| lint.code).collect();
    assert_eq!(codes.len(), LINTS.len(), "a code is listed twice");
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let code = name.split('.').next().unwrap().to_owned();
        assert!(codes.contains(code.as_str()), "{name}");
    }
    assert!(codes.iter().all(|code| code.chars().all(|c| c.is_ascii_lowercase() || c == '-')));
}

#[test]
fn there_is_a_schema_if_and_only_if_there_is_no_error() {
    for lint in LINTS {
        for which in ["bad", "good"] {
            let loaded = fixture(lint.code, which);
            let failed = loaded.diagnostics.iter().any(|d| d.severity == Severity::Error);
            assert_eq!(loaded.schema.is_none(), failed, "{} {which}", lint.code);
        }
    }
}

#[test]
fn all_problems_come_at_once_with_their_places_and_nearest_words() {
    let found = one(
        "[schema]\nname = \"x\"\nownr = \"me\"\n\n[limit.a]\nkey = \"a:{id}\"\nalgoritm = \"sliding_log\"\n\
                     limit = -1\nwindow = \"1 hour\"\n\n[lok.b]\nkey = \"b\"\n",
    );
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    s.toml:3:1: error[unknown-field]: [schema] has no field `ownr`
      help: did you mean `owner`?
    s.toml:5:8: error[missing-field]: [limit.a] has no `algorithm`
    s.toml:7:1: error[unknown-field]: [limit.a] has no field `algoritm`
      help: did you mean `algorithm`?
    s.toml:8:9: error[wrong-type]: `limit` must be a whole number from 0, not `-1`
    s.toml:9:10: error[bad-unit]: `window` must be a duration such as "250ms", "60s", "1h30m", "7d", not `1 hour`
    s.toml:11:2: error[unknown-kind]: there is no kind `lok`
      help: did you mean `[lock]`?
    "#);
}

#[test]
fn a_syntax_error_names_its_place_and_the_other_files_are_still_checked() {
    let sources = [
        Source { name: "a.toml", text: "[limit.a]\nkey = \n" },
        Source {
            name: "b.toml",
            text: "[limit.b]\nkey = \"b:{id}\"\nalgorithm = \"nonsense\"\nlimit = 1\nwindow = \"1s\"\n",
        },
    ];
    let found = load(&sources, &|_| None).diagnostics;
    let codes: Vec<(&str, &str, usize)> = found.iter().map(|d| (d.source.as_str(), d.code, d.line)).collect();
    assert_eq!(codes, [("a.toml", "toml-syntax", 2), ("b.toml", "bad-value", 3)]);
}

#[test]
fn a_resource_with_a_mistake_is_not_reported_as_undeclared() {
    let found = one(
        "[limit.a]\nkey = \"a:{id}\"\nalgorithm = \"sliding_log\"\nlimit = 1\n\n[guard.g]\nlimits = [\"a\"]\n",
    );
    assert_eq!(found.iter().map(|d| d.code).collect::<Vec<_>>(), ["missing-field"]);
    let sources = [
        Source { name: "a.toml", text: "[limit.a\n" },
        Source { name: "b.toml", text: "[guard.g]\nlimits = [\"a\"]\n" },
    ];
    assert!(load(&sources, &env).diagnostics.iter().all(|d| d.code == "toml-syntax"));
}

#[test]
fn an_overlap_across_files_is_found() {
    let limit = |name: &str| {
        format!(
            "[limit.{name}]\nkey = \"a:{{id}}\"\nalgorithm = \"sliding_log\"\nlimit = 1\nwindow = \"1s\"\n"
        )
    };
    let (a, b) = (limit("a"), limit("b"));
    let sources = [Source { name: "a.toml", text: &a }, Source { name: "b.toml", text: &b }];
    let loaded = load(&sources, &|_| None);
    assert!(loaded.schema.is_none());
    let overlap = &loaded.diagnostics[0];
    assert_eq!((overlap.code, overlap.source.as_str()), ("key-overlap", "b.toml"));
    assert!(overlap.message.contains("a.toml:2"), "{}", overlap.message);
}

#[test]
fn what_the_loader_may_not_take_back_is_an_overlap() {
    let cache =
        |name: &str, key: &str, more: &str| format!("[cache.{name}]\nkey = \"{key}\"\nttl = \"1m\"\n{more}");
    let codes = |text: String| one(&text).into_iter().map(|d| d.code).collect::<Vec<_>>();
    let profile = cache("p", "a:{user}:profile", "");
    assert_eq!(codes(cache("c", "a:{id}", "colon = \"id\"\n") + &profile), ["key-overlap"]);
    assert_eq!(codes(cache("c", "a:{id}", "colon = \"\"\n") + &profile), [""; 0]);
    assert_eq!(codes(cache("c", "a:{id}", "colon = \"user\"\n")), ["bad-value"]);
}

#[test]
fn a_cluster_is_refused_what_a_single_node_may_run() {
    let schema = fixture("cluster-slots", "bad").schema.unwrap();
    let problems = schema.cluster_problems();
    assert_eq!(problems.len(), 1);
    assert_eq!((problems[0].severity, problems[0].code), (Severity::Error, "cluster-slots"));
    assert!(fixture("cluster-slots", "good").schema.unwrap().cluster_problems().is_empty());

    // A guard is entered in steps where it must be.
    let parted = fixture("guard-steps", "bad");
    assert_eq!(parted.diagnostics.iter().map(|d| d.severity).collect::<Vec<_>>(), [Severity::Warning]);
    assert!(parted.diagnostics[0].message.contains("2 steps"), "{}", parted.diagnostics[0].message);
    assert!(parted.schema.unwrap().cluster_problems().is_empty());
}

#[test]
fn bounds_of_each_algorithm_are_exact() {
    let codes = |algorithm: &str, limit: u64, window: &str| {
        let text = format!(
            "[limit.a]\nkey = \"a:{{id}}\"\nalgorithm = \"{algorithm}\"\nlimit = {limit}\nwindow = \"{window}\"\n"
        );
        one(&text).into_iter().map(|d| d.code).collect::<Vec<_>>()
    };
    let none = [""; 0];
    assert_eq!(codes("sliding_window", 9_007_199_254_740, "1s"), none);
    assert_eq!(codes("sliding_window", 9_007_199_254_741, "1s"), ["limit-bounds"]);
    assert_eq!(codes("token_bucket", 1_000_000, "1s"), none);
    assert_eq!(codes("token_bucket", 1_000_001, "1s"), ["limit-bounds"]);
    assert_eq!(codes("fixed_window", 1_000_000_000_000_000, "366d"), none);
    assert_eq!(codes("fixed_window", 1_000_000_000_000_001, "1s"), ["bad-value"]);
    assert_eq!(codes("fixed_window", 1, "367d"), ["bad-value"]);
    assert_eq!(codes("fixed_window", 0, "1ms"), none);
}

#[test]
fn eviction_takes_everything_but_caches() {
    let text = "[cache.c]\nkey = \"c:{id}\"\nttl = \"1m\"\n[lock.l]\nkey = \"l:{id}\"\nttl = \"1m\"\n[queue.q]\nmax_size = 9\n";
    let schema = load(&[Source { name: "s", text }], &|_| None).schema.unwrap();
    let kinds = |policy: &str| {
        let losses = schema.eviction_losses(policy);
        losses.into_iter().map(|loss| (loss.kind.name(), loss.role)).collect::<BTreeSet<_>>()
    };
    assert!(kinds("noeviction").is_empty());
    assert!(kinds("allkeys-lru").contains(&("queue", "items")));
    assert!(!kinds("volatile-ttl").contains(&("queue", "items")), "it has no TTL");
    assert!(kinds("volatile-ttl").contains(&("lock", "lock")));
    assert!(kinds("allkeys-lru").iter().all(|(kind, _)| *kind != "cache"));
    assert_eq!(kinds("something-new"), kinds("allkeys-random"));
}

#[test]
fn a_key_that_is_a_bucket_and_separators_has_no_hash_tag_and_is_refused() {
    let limit = |key: &str| {
        let text =
            format!("[limit.a]\nkey = \"{key}\"\nalgorithm = \"fixed_window\"\nlimit = 1\nwindow = \"1m\"\n");
        one(&text).into_iter().map(|d| d.code).collect::<Vec<_>>()
    };
    for key in [":{minute}", "::{minute}", "{minute}:", ":{minute}:", "{minute}"] {
        assert_eq!(limit(key), ["bad-pattern"], "{key}");
    }
    for key in ["a:{minute}", "::a{minute}"] {
        assert_eq!(limit(key), [""; 0], "{key}");
    }
    assert_eq!(limit("{minute}:{id}"), ["matches-everything"], "a warning alone");
    let run = |key: &str| {
        one(&format!("[run.r]\nkey = \"{key}\"\nstate_ttl = \"1h\"\nhour_ttl = \"2h\"\n"))
            .into_iter()
            .map(|d| d.code)
            .collect::<Vec<_>>()
    };
    assert_eq!(run("{run_id}"), ["bad-pattern"], "its index would lie under `{{}}`");
    assert_eq!(run("run:{run_id}"), [""; 0]);
    let batch = "[queue.q]\nmax_size = 9\n[batch.b]\nby = \"c\"\nwindow = \"1m\"\nto = \"q\"\n";
    let found = one(&format!("{batch}key = \"{{c}}:current\"\n"));
    assert!(found.iter().any(|d| d.code == "bad-pattern"), "{found:?}");
}

#[test]
fn a_run_is_stale_before_it_is_forgotten_and_counts_the_calls_of_an_hour() {
    let codes = |text: &str| one(text).into_iter().map(|d| d.code).collect::<Vec<_>>();
    let run = |more: &str| {
        codes(&format!("[run.r]\nkey = \"r:{{id}}\"\nstate_ttl = \"1h\"\nhour_ttl = \"2h\"\n{more}"))
    };
    assert_eq!(run("stale_after = \"59m\"\n"), [""; 0]);
    assert_eq!(run("stale_after = \"1h\"\n"), ["contradiction"]);
    assert_eq!(run("stale_after = \"0s\"\n"), ["bad-value"]);
    // The fields of its hash have different names.
    assert_eq!(run("calls_field = \"calls\"\nprocessed_field = \"done\"\n"), [""; 0]);
    for line in
        ["calls_field = \"status\"", "processed_field = \"id\"", "processed_field = \"api_calls_this_hour\""]
    {
        assert_eq!(run(&format!("{line}\n")), ["contradiction"], "{line}");
    }
    assert_eq!(run("calls_field = \"a b\"\n"), ["bad-value"]);
    let limit = |key: &str, window: &str| {
        let limit = format!(
            "[limit.l]\nkey = \"{key}\"\nalgorithm = \"fixed_window\"\nlimit = 9\nwindow = \"{window}\"\n"
        );
        run(&format!("limit = \"l\"\n{limit}"))
    };
    assert_eq!(limit("calls:{hour}", "1h"), [""; 0]);
    assert_eq!(limit("calls:{minute}", "1m"), ["contradiction"]);
    assert_eq!(limit("calls:{who}:{hour}", "1h"), ["contradiction"]);
    assert_eq!(run("limit = \"l\"\n"), ["unknown-resource"]);
}

#[test]
fn an_upload_that_could_never_take_a_file_is_told_before_it_starts() {
    let codes =
        |line: &str| one(&format!("[upload.u]\n{line}\n")).into_iter().map(|d| d.code).collect::<Vec<_>>();
    for wrong in ["chunks = \"ftp://x\"", "chunks = \"spool\"", "connector = \"../x\"", "connector = \"..\""]
    {
        assert_eq!(codes(wrong), ["bad-value"], "{wrong}");
    }
    for right in ["chunks = \"file:spool\"", "chunks = \"rediss+cluster://a,b\"", "connector = \"c-1.x\""] {
        assert_eq!(codes(right), [""; 0], "{right}");
    }
}

#[test]
fn a_placeholder_may_not_be_named_like_one_of_the_kinds_other_keys() {
    let codes = |text: &str| one(text).into_iter().map(|d| d.code).collect::<Vec<_>>();
    let upload = |id: &str| codes(&format!("[upload.u]\nkey = \"up:{{{id}}}:state\"\n"));
    assert_eq!(upload("chunk_number"), ["reserved-placeholder"]);
    assert_eq!(upload("stage_id"), ["reserved-placeholder"]);
    assert_eq!(upload("claim_id"), ["reserved-placeholder"]);
    assert_eq!(upload("upload_id"), [""; 0]);
    let run = "[run.r]\nkey = \"r:{task_id}\"\nstate_ttl = \"1h\"\nhour_ttl = \"2h\"\n";
    assert_eq!(codes(run), ["reserved-placeholder"]);
    let batch = |by: &str| {
        codes(&format!(
            "[queue.q]\nmax_size = 9\ncolocate = \"q\"\n\
             [batch.b]\nby = \"{by}\"\nwindow = \"1m\"\nto = \"q\"\ncolocate = \"q\"\n"
        ))
    };
    assert_eq!(batch("batch_id"), ["reserved-placeholder"]);
    assert_eq!(batch("request_id"), ["reserved-placeholder"]);
    assert_eq!(batch("camera_id"), [""; 0]);
    assert_eq!(codes("[event.e]\nchannel = \"e:{publish_id}\"\n"), ["reserved-placeholder"]);
}

#[test]
fn no_key_of_a_batch_can_be_the_key_of_what_it_is_grouped_by() {
    let codes = |by: &str, rest: &str| {
        one(&format!(
            "[queue.q]\nmax_size = 9\ncolocate = \"q\"\n\
             [batch.b]\nby = \"{by}\"\nwindow = \"1m\"\nto = \"q\"\ncolocate = \"q\"\n{rest}"
        ))
        .into_iter()
        .map(|d| d.code)
        .collect::<Vec<_>>()
    };
    for by in ["current", "ids", "size", "started_at", "last_activity"] {
        assert_eq!(codes(by, ""), ["bad-value"], "{by}");
    }
    assert_eq!(codes("c", "items = \"current\"\n"), ["bad-value"]);
    assert_eq!(codes("c", "items = \"c\"\n"), ["bad-value"]);
    assert_eq!(codes("c", "key = \"b:{c}:items\"\n"), ["bad-value"]);
    assert_eq!(codes("c", "key = \"b:{c}:open\"\nitems = \"current\"\n"), [""; 0]);
}

#[test]
fn a_status_has_one_channel_and_queues_that_are_declared() {
    let codes = |text: &str| one(text).into_iter().map(|d| d.code).collect::<Vec<_>>();
    let event = "[queue.q]\nmax_size = 9\n[event.e]\n";
    assert_eq!(codes(&format!("{event}status = {{}}\n")), [""; 0]);
    assert_eq!(codes(&format!("{event}status = {{ every = \"2s\", queues = [\"q\"] }}\n")), [""; 0]);
    assert_eq!(codes(&format!("{event}status = {{ queues = [\"r\"] }}\n")), ["unknown-resource"]);
    assert_eq!(codes(&format!("{event}status = {{ queues = [\"q\", \"q\"] }}\n")), ["contradiction"]);
    assert_eq!(codes(&format!("{event}status = {{ every = \"10ms\" }}\n")), ["bad-value"]);
    assert_eq!(codes(&format!("{event}status = {{ evry = \"10s\" }}\n")), ["unknown-field"]);
    assert_eq!(codes(&format!("{event}channel = \"e:{{id}}\"\nstatus = {{}}\n")), ["contradiction"]);
}

#[test]
fn a_guard_takes_as_many_limits_as_one_script_and_no_more() {
    let guard = |count: usize| {
        let limit = |n: usize| {
            format!(
                "[limit.a{n}]\nkey = \"a{n}:{{id}}\"\nalgorithm = \"token_bucket\"\nlimit = 1\nwindow = \"1s\"\n\
                 colocate = \"{{id}}\"\n"
            )
        };
        let names: Vec<String> = (0..count).map(|n| format!("\"a{n}\"")).collect();
        one(&format!(
            "{}[guard.g]\nlimits = [{}]\n",
            (0..count).map(limit).collect::<String>(),
            names.join(", ")
        ))
    };
    assert_eq!(guard(16), []);
    let found = guard(17);
    assert_eq!(found.iter().map(|d| d.code).collect::<Vec<_>>(), ["bad-value"]);
    assert!(found[0].message.contains("16"), "{}", found[0].message);
}

#[test]
fn an_idempotency_contradicts_itself_in_no_field_and_crosses_no_bucket() {
    let found = |fields: &str| -> Vec<&str> {
        let text = format!("[idempotency.pay]\nttl = \"1h\"\n{fields}\n");
        one(&text).iter().map(|diagnostic| diagnostic.code).collect()
    };
    let key = "key = \"idem:{request_id}\"";
    assert_eq!(found(key), [""; 0]);
    assert_eq!(found(&format!("{key}\ncompact = true\nreplay_errors = \"none\"")), [""; 0]);
    assert_eq!(found(&format!("{key}\ncompact = true\nmax_response = \"1KiB\"")), ["contradiction"]);
    assert_eq!(found(&format!("{key}\nreplay_errors = \"server\"")), ["bad-value"]);
    assert_eq!(found("key = \"idem:{id}:{day}\""), ["bad-pattern"]);
}

#[test]
fn one_wrong_field_of_an_upload_makes_no_other_unknown() {
    let fields = [
        ("objects", "s3://bucket"),
        ("database", "sqlite:u.db"),
        ("events", "outbox:"),
        ("chunks", "file:spool"),
        ("object_key", "files/{node_id}"),
        ("connector", "default"),
        ("topic", "done"),
    ];
    for (wrong, _) in &fields[..5] {
        let mut text = "[schema]\nname = \"s\"\nowner = \"o\"\n[upload.u]\n".to_owned();
        for (name, value) in fields {
            let value = if name == *wrong { "gopher://x/{" } else { value };
            text = format!("{text}{name} = \"{value}\"\n");
        }
        let found = one(&text);
        let named: Vec<_> = found.iter().map(|d| (d.code, d.line)).collect();
        let line = 5 + fields.iter().position(|(name, _)| name == wrong).unwrap();
        assert!(
            !named.is_empty() && named.iter().all(|(code, at)| *code != "unknown-field" && *at == line),
            "{found:?}"
        );
    }
}

#[test]
fn chunks_smaller_than_a_part_of_s3_may_be_are_told_wherever_they_were_said() {
    let found = |text: &str, objects: &'static str| {
        let env = move |name: &str| (name == "OBJECTS").then(|| objects.to_owned());
        let found = load(&[Source { name: "s.toml", text }], &env).diagnostics;
        found.into_iter().map(|d| (d.code, d.line)).collect::<Vec<_>>()
    };
    let small = "[upload.u]\nchunk_min = \"4MiB\"\nobjects = { env = \"OBJECTS\" }\n";
    assert_eq!(
        found(small, "s3://bucket/under"),
        [("contradiction", 2)],
        "S3 would refuse its parts at the end"
    );
    assert_eq!(found(small, "file:objects"), [], "files may be of any size");
    let from_env = "[upload.u]\nchunk_min = { env = \"LEAST\", default = 1 }\nobjects = \"s3://b\"\n";
    assert_eq!(found(from_env, ""), [("contradiction", 2)]);
    assert_eq!(found("[upload.u]\nchunk_min = \"5MiB\"\nobjects = \"s3://b\"\n", ""), []);
    assert_eq!(found("[upload.u]\nobjects = \"s3://b\"\n", ""), [], "as it is unless said");
}

#[test]
fn a_topic_is_one_that_kafka_could_have() {
    let found = |topic: &str| one(&format!("[upload.u]\ntopic = \"{topic}\"\n"));
    for good in ["a", "repository.uploads.completed", "A_b-9", &"x".repeat(249)] {
        assert_eq!(found(good), [], "{good}");
    }
    for bad in ["", ".", "..", "a b", "a/b", "ü", &"x".repeat(250)] {
        let found = found(bad);
        assert_eq!(found.iter().map(|d| (d.code, d.line)).collect::<Vec<_>>(), [("bad-value", 2)], "{bad}");
        assert!(found[0].message.contains("`topic`"), "{}", found[0]);
    }
}

#[test]
fn an_object_key_that_could_become_too_long_is_told_before_a_row_is_written() {
    let found = |key: &str, objects: &str| {
        let found = one(&format!("[upload.u]\nobjects = \"{objects}\"\nobject_key = \"{key}\"\n"));
        found.into_iter().map(|d| (d.code, d.line, d.message)).collect::<Vec<_>>()
    };
    // The longest connector has 128 bytes, every node's id 36.
    let fits = |fill: usize| format!("{{connector_id}}-{{node_id}}{}", "x".repeat(fill));
    assert_eq!(found(&fits(90), "file:o"), []);
    let segment = found(&fits(91), "file:o");
    assert!(matches!(&segment[..], [("bad-value", 3, why)] if why.contains("256")), "{segment:?}");
    // 985 and a slash and 36 are 1022.
    let deep = format!("{}x/{{node_id}}", "x/".repeat(492));
    assert_eq!(found(&deep, "file:o"), []);
    assert_eq!(found(&deep, "s3://bucket"), []);
    let whole = found(&format!("abc{deep}"), "file:o");
    assert!(matches!(&whole[..], [("bad-value", 3, why)] if why.contains("1025")), "{whole:?}");
    let prefixed = found(&deep, "s3://bucket/ab/");
    assert!(matches!(&prefixed[..], [("bad-value", 3, why)] if why.contains("1025")), "{prefixed:?}");
    assert_eq!(found(&deep, "s3://bucket/a"), []);
}

#[test]
fn whatever_is_declared_twice_is_named_with_a_help() {
    let owned = "[key.a]\nkey = \"a\"\ntype = \"string\"\n";
    for (text, name) in [
        (owned.repeat(2), "a"),
        (format!("{owned}type = \"hash\"\n"), "type"),
        (format!("{owned}\"type\" = \"hash\"\n"), "\\\"type\\\""),
        ("[key]\na = { key = \"a\", key = \"b\" }\n".to_owned(), "key"),
        ("[key]\na.key = \"a\"\na.key = \"b\"\n".to_owned(), "key"),
        ("[key]\na = { b.c = 1, b.c = 2 }\n".to_owned(), "c"),
        (format!("{owned}[key]\na = 1\n"), "a"),
        (format!("[key]\na = 1\n{owned}"), "a"),
        (format!("{owned}[[key.a]]\n"), "a"),
    ] {
        let told: Vec<String> = one(&text).iter().map(ToString::to_string).collect();
        let twice = told.iter().find(|told| told.contains("is declared twice"));
        let twice = twice.unwrap_or_else(|| panic!("{text}{told:?}"));
        assert!(twice.contains(&format!("`{name}` is declared twice")), "{name}: {twice}");
        assert!(twice.contains("is written once"), "{twice}");
    }
    let told: Vec<String> = one("[key.a\n").iter().map(ToString::to_string).collect();
    assert!(told.iter().all(|told| !told.contains("twice")), "{told:?}");
}

#[test]
fn what_beginners_write_is_answered_with_what_to_write() {
    let limit = |key: &str, limit: &str| {
        format!(
            "[limit.a]\nkey = \"{key}\"\nalgorithm = \"sliding_log\"\nlimit = {limit}\nwindow = \"60s\"\n"
        )
    };
    let twice = limit("a:{id}", "1").repeat(2);
    let batch = "[queue.q]\nmax_size = 9\n[batch.b]\nby = \"id\"\nwindow = \"9s\"\nto = \"q\"\nkey = \"b:{other}:now\"\n";
    for (text, part) in [
        (limit("a:{id}", "\"100\""), "write it without quotes: `limit = 100`"),
        (limit("a:{id}", "1").replace("60s", "60"), "write its unit, too"),
        (limit("a:{customer-id}", "1"), "write `{customer_id}`"),
        (limit("a:{1}", "1"), "no digit first"),
        (twice, "is declared twice"),
        (batch.to_owned(), "leave `key` out, or write one such as `batch:{id}:current`"),
        (limit("{id}", "1"), "put a word in front, as in `a:{id}`"),
    ] {
        let told: Vec<String> = one(&text).iter().map(ToString::to_string).collect();
        assert!(told.iter().any(|told| told.contains(part)), "{part}: {told:?}");
    }
    let prefixed = format!("[schema]\nname = \"s\"\nprefix = \"s:\"\n{}", limit("{id}", "1"));
    assert!(one(&prefixed).iter().all(|found| found.code != "matches-everything"), "the prefix is text");
}

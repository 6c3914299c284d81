#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

fn pattern(single: &str, cluster: Template, wide: &str) -> Pattern {
    let single = Template::parse(single).unwrap();
    let mut side = single.without_bucket().braced();
    side.push_text(":");
    let placeholder = |name: &str| Placeholder {
        name: name.to_owned(),
        class: if name == wide { Class::Wide } else { Class::Narrow },
        forbidden: vec!["tx".to_owned()],
    };
    let placeholders = single.names().map(placeholder).collect();
    Pattern::new(Blueprint { single: &single, cluster: &cluster, side: [&side, &side], placeholders })
}

fn psp() -> Pattern {
    let single = Template::parse("rl:{psp_id}:{minute}").unwrap();
    pattern("rl:{psp_id}:{minute}", single.tagged_in_place(&single.without_bucket()).unwrap(), "")
}

fn render(pattern: &Pattern, values: &[(&str, &str)], spelling: Spelling) -> Result<String, KeyError> {
    let mut out = b"before|".to_vec();
    let done = pattern.render(values, 1_705_329_059_000_000, spelling, &mut out).map(|_| ());
    let text = String::from_utf8(out).unwrap();
    match done {
        Ok(()) => Ok(text.strip_prefix("before|").unwrap().to_owned()),
        Err(error) => {
            assert_eq!(text, "before|", "a failed rendering leaves the buffer alone");
            Err(error)
        }
    }
}

#[test]
fn a_key_is_spelled_as_the_schema_writes_it_and_tagged_on_a_cluster() {
    let values = [("psp_id", "PSP001")];
    assert_eq!(render(&psp(), &values, Spelling::Single).unwrap(), "rl:PSP001:2024-01-15-14-30");
    assert_eq!(render(&psp(), &values, Spelling::Cluster).unwrap(), "{rl:PSP001}:2024-01-15-14-30");
    let mut out = Vec::new();
    psp().render_side(&values, "req:7", Spelling::Cluster, &mut out).unwrap();
    assert_eq!(out, b"{rl:PSP001}:req:7");
}

#[test]
fn the_bucket_of_the_key_is_told() {
    let mut out = Vec::new();
    let bucket = psp().render(&[("psp_id", "a")], 1_705_329_059_000_000, Spelling::Single, &mut out).unwrap();
    assert_eq!(bucket, Some(Bucket { start_ms: 1_705_329_000_000, end_ms: 1_705_329_060_000 }));
}

#[test]
fn hostile_values_are_refused_and_named() {
    let long = "x".repeat(513);
    let hostile =
        ["", "a*", "a?", "[a", "a]", "{a", "a}", "a\n", "a\0", "a\u{7f}", "a\u{85}", "a:b", "tx", &long];
    for value in hostile {
        let error = render(&psp(), &[("psp_id", value)], Spelling::Single).unwrap_err();
        assert_eq!(error.code, Code::KeyValue, "{value:?}");
        let detail = error.detail();
        assert!(detail.contains("`psp_id`"), "{detail}");
        assert!(detail.len() < 200 && !detail.contains(['\n', '\0']), "{detail}");
    }
    for fine in ["a", "t", "txx", "ä ö/ü", &"x".repeat(512), "-1", "a\u{a0}b"] {
        assert!(render(&psp(), &[("psp_id", fine)], Spelling::Single).is_ok(), "{fine:?}");
    }
}

#[test]
fn missing_unknown_and_doubled_values_are_told_apart() {
    let code = |values: &[(&str, &str)]| render(&psp(), values, Spelling::Single).unwrap_err().code;
    assert_eq!(code(&[]), Code::KeyMissing);
    assert_eq!(code(&[("minute", "x")]), Code::KeyMissing);
    assert_eq!(code(&[("psp_id", "a"), ("minute", "x")]), Code::KeyUnknown);
    assert_eq!(code(&[("psp_id", "a"), ("psp_id", "b")]), Code::KeyUnknown);
}

#[test]
fn a_hostile_suffix_makes_no_side_key() {
    for suffix in ["", "req:", "req:a*", "req:{", "req:\n", &format!("req:{}", "x".repeat(600))] {
        let mut out = Vec::new();
        let done = psp().render_side(&[("psp_id", "a")], suffix, Spelling::Single, &mut out);
        assert_eq!(done.unwrap_err().code, Code::KeyValue, "{suffix:?}");
        assert!(out.is_empty());
    }
}

#[test]
fn a_wide_value_in_the_middle_comes_back_whole() {
    let text = "task:{run}:{task}";
    let pattern = pattern(text, Template::parse(text).unwrap(), "run");
    let values = [("run", "manual_2024-09-17T14:30:00+00:00"), ("task", "a")];
    let key = render(&pattern, &values, Spelling::Single).unwrap();
    assert_eq!(pattern.parse(key.as_bytes()).unwrap(), values.map(|(n, v)| (n.to_owned(), v.to_owned())));
    assert_eq!(pattern.parse(b"task:a"), None);
    assert_eq!(pattern.parse(b"task:tx:a"), None, "a forbidden value is another pattern's key");
    assert_eq!(pattern.parse(b"task:\xff:a"), None, "not UTF-8");
}

#[test]
fn an_error_names_its_placeholder_beside_its_words() {
    let (long, odd) = ("x".repeat(40), "a\nb");
    for (values, code, placeholder) in [
        (vec![], Code::KeyMissing, Some("psp_id")),
        (vec![("psp_id", "")], Code::KeyValue, Some("psp_id")),
        (vec![("psp_id", "a"), ("minute", "x")], Code::KeyUnknown, Some("minute")),
        (vec![("psp_id", "a"), (&*long, "x")], Code::KeyUnknown, None),
        (vec![("psp_id", "a"), (odd, "x")], Code::KeyUnknown, None),
        (vec![("psp_id", "a"), ("psp_id", "b")], Code::KeyUnknown, None),
    ] {
        let error = render(&psp(), &values, Spelling::Single).unwrap_err();
        assert_eq!((error.code, error.placeholder.as_deref()), (code, placeholder), "{error}");
    }
    let error = render(&psp(), &[("psp_id", "")], Spelling::Single).unwrap_err().called("id");
    assert_eq!((error.detail().as_str(), error.placeholder.as_deref()), ("`id` is empty", Some("id")));
}

#[test]
fn a_key_for_people_keeps_its_bucket_as_the_pattern_has_it() {
    let shown = |value: Option<&'static str>| psp().shown(|_| value);
    assert_eq!(shown(Some("PSP001")).as_deref(), Some("rl:PSP001:{minute}"));
    assert_eq!(shown(None), None);
    assert_eq!(shown(Some("a:b")), None, "a value that makes no key is not shown");
}

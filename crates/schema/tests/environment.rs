//! Scalars from the environment.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use quaymaster_schema::{Diagnostic, Kind, LimitSpec, Outage, Source, Spec, load, load_set};

fn limit_with(line: &str, env: &[(&str, &str)]) -> Result<(LimitSpec, Outage), Vec<Diagnostic>> {
    let mut text = String::from("[limit.a]\nkey = \"a:{id}\"\nalgorithm = \"sliding_log\"\n");
    for field in ["limit = 10", "window = \"60s\""] {
        if line.split(' ').next() != field.split(' ').next() {
            text.push_str(field);
            text.push('\n');
        }
    }
    text.push_str(line);
    let find =
        |wanted: &str| env.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned());
    let loaded = load(&[Source { name: "s.toml", text: &text }], &find);
    let Some(schema) = loaded.schema else { return Err(loaded.diagnostics) };
    let resource = schema.resource(Kind::Limit, "a").unwrap();
    Ok((resource.as_limit().unwrap().clone(), resource.on_outage))
}

fn window(line: &str, env: &[(&str, &str)]) -> Duration {
    limit_with(line, env).unwrap().0.window
}

#[test]
fn a_variable_with_a_unit_in_its_name_holds_a_bare_number() {
    let line = "window = { env = \"WINDOW_HOURS\", unit = \"h\", default = \"2h\" }";
    assert_eq!(window(line, &[]), Duration::from_secs(7200));
    assert_eq!(window(line, &[("WINDOW_HOURS", "3")]), Duration::from_secs(3 * 3600));
    let bare = "window = { env = \"WINDOW_HOURS\", unit = \"h\", default = 4 }";
    assert_eq!(window(bare, &[]), Duration::from_secs(4 * 3600));
}

#[test]
fn a_variable_without_a_unit_carries_its_own() {
    let line = "window = { env = \"WINDOW\", default = \"2h\" }";
    assert_eq!(window(line, &[("WINDOW", "1h30m")]), Duration::from_secs(5400));
}

#[test]
fn an_empty_variable_counts_as_unset() {
    assert_eq!(limit_with("limit = { env = \"L\", default = 7 }", &[("L", "")]).unwrap().0.limit, 7);
    assert_eq!(limit_with("limit = { env = \"L\", default = 7 }", &[("L", "1_000")]).unwrap().0.limit, 1000);
}

#[test]
fn words_come_from_the_environment_too() {
    let line = "on_outage = { env = \"POLICY\", default = \"deny\" }";
    assert_eq!(limit_with(line, &[("POLICY", "local")]).unwrap().1, Outage::Local);
    for capitals in ["LOCAL", "Local"] {
        assert_eq!(limit_with(line, &[("POLICY", capitals)]).unwrap().1, Outage::Local);
    }
    assert_eq!(
        limit_with("on_outage = \"LOCAL\"", &[]).unwrap_err()[0].code,
        "bad-value",
        "a file's word is exact"
    );
    let found = limit_with(line, &[("POLICY", "alow")]).unwrap_err();
    assert_eq!(found[0].code, "bad-env");
    assert!(found[0].message.contains("POLICY"), "{}", found[0]);
    assert_eq!(found[0].help.as_deref(), Some("did you mean `allow`?"));
}

#[test]
fn a_bad_value_is_blamed_on_its_variable() {
    let cases = [
        ("limit = { env = \"VAR_X\", default = 7 }", "ten", "bad-env"),
        ("limit = { env = \"VAR_X\", default = 7 }", "-1", "bad-env"),
        ("limit = { env = \"VAR_X\", default = 7 }", "99999999999999999999", "bad-env"),
        ("window = { env = \"VAR_X\", default = \"1h\" }", "60", "bad-env"),
        ("window = { env = \"VAR_X\", unit = \"h\", default = \"1h\" }", "2h", "bad-env"),
        ("sensitive = { env = \"VAR_X\", default = false }", "yes", "bad-env"),
    ];
    for (line, value, code) in cases {
        let found = limit_with(line, &[("VAR_X", value)]).unwrap_err();
        assert_eq!((found.len(), found[0].code), (1, code), "{line} {value}: {found:?}");
        assert!(found[0].message.contains("VAR_X") && found[0].message.contains(value), "{}", found[0]);
    }
}

#[test]
fn no_message_shows_a_password() {
    let text = "[upload.u]\ndatabase = { env = \"DB\" }\n";
    let password = |name: &str| (name == "DB").then(|| "postgrs://me:hunter2@db/x".to_owned());
    let found = load(&[Source { name: "s.toml", text }], &password).diagnostics;
    assert_eq!(found[0].code, "bad-value");
    assert!(found[0].message.contains("postgrs") && !found[0].message.contains("hunter2"), "{}", found[0]);

    let text = "[queue.q]\nmax_size = 1\npush = { url = \"http://x\", secret = { env = \"S\" } }\n";
    let loaded = load(&[Source { name: "s.toml", text }], &|_| Some("hunter2".to_owned()));
    let schema = loaded.schema.unwrap();
    let queue = &schema.resource(Kind::Queue, "q").unwrap().spec;
    assert!(!format!("{queue:?}").contains("hunter2"));
    let Spec::Queue(queue) = queue else { panic!() };
    assert_eq!(queue.push.as_ref().unwrap().secret.as_ref().unwrap().expose(), "hunter2");
}

#[test]
fn the_form_itself_is_checked() {
    let cases = [
        ("limit = { env = \"L\", defualt = 7 }", "unknown-field"),
        ("limit = { env = 1, default = 7 }", "wrong-type"),
        ("limit = { env = \"L\", default = { env = \"M\" } }", "wrong-type"),
        ("limit = { default = 7 }", "wrong-type"),
        ("window = { env = \"W\", unit = \"hours\", default = \"1h\" }", "bad-unit"),
        ("limit = { env = \"L\", default = \"7\" }", "wrong-type"),
    ];
    for (line, code) in cases {
        let found = limit_with(line, &[("L", "")]).unwrap_err();
        assert!(found.iter().any(|d| d.code == code), "{line}: {found:?}");
    }
}

#[test]
fn what_lacks_a_variable_is_left_out_with_what_refers_to_it() {
    let text = "[limit.plain]\nkey = \"p:{id}\"\nalgorithm = \"sliding_log\"\nlimit = 1\nwindow = \"1h\"\n\
        [limit.wants]\nkey = \"w:{id}\"\nalgorithm = \"sliding_log\"\nlimit = { env = \"WANTED\" }\nwindow = \"1h\"\n\
        [guard.both]\nlimits = [\"plain\", \"wants\"]\n\
        [queue.jobs]\nmax_size = 9\npush = { url = { env = \"URL\" } }\n";
    let sources = [Source { name: "s.toml", text }];
    assert!(load(&sources, &|_| None).schema.is_none());
    let loaded = load_set(&sources, &|_| None);
    let schema = loaded.schema.unwrap();
    assert_eq!(
        schema.all_left_out().collect::<Vec<_>>(),
        [("guard.both", "WANTED"), ("limit.wants", "WANTED")]
    );
    assert_eq!(schema.left_out(Kind::Limit, "wants"), Some("WANTED"));
    assert!(
        schema.resource(Kind::Limit, "wants").is_none() && schema.left_out(Kind::Limit, "plain").is_none()
    );
    let Spec::Queue(jobs) = &schema.resource(Kind::Queue, "jobs").unwrap().spec else { panic!() };
    assert!(jobs.push.is_none(), "who pushes and claims sends nothing");
    let all = load_set(&sources, &|_| Some("7".to_owned()));
    assert!(all.schema.is_none(), "a variable that is set must fit: {:?}", all.diagnostics);
}

#[test]
fn a_prefix_that_is_not_set_is_an_error_whatever_is_used() {
    let text = "[schema]\nname = \"a\"\nprefix = { env = \"PREFIX\" }\n[queue.jobs]\nmax_size = 9\n";
    let loaded = load_set(&[Source { name: "s.toml", text }], &|_| None);
    assert!(loaded.schema.is_none() && loaded.diagnostics.iter().any(|found| found.code == "env-unset"));
}

//! What the documents show is run, and answers what they say.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::address::{at_own_address, set_up};
use crate::process::{Served, any_port, command, folder, said};
use crate::servers::{RedisConfig, RedisServer};

/// The fenced blocks of a document: language, text, line.
fn blocks(text: &str) -> Vec<(String, String, usize)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String, usize)> = None;
    for (at, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => open = Some((language.trim().to_owned(), String::new(), at + 1)),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some((_, text, _)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// Equal but for what depends on the moment: times, sizes.
fn same(shown: &Value, told: &Value, name: &str) -> bool {
    match (shown, told) {
        (Value::Object(a), Value::Object(b)) => {
            a.keys().eq(b.keys()) && a.iter().all(|(key, value)| same(value, &b[key], key))
        }
        // Random, or a moment.
        (Value::String(a), Value::String(b))
            if matches!(
                name,
                "batch_id"
                    | "started_at"
                    | "ended_at"
                    | "last_activity"
                    | "start_time"
                    | "current_hour"
                    | "peak_hour"
                    | "last_failed_at"
                    | "finished_at"
                    | "generated_at"
                    | "upload_id"
                    | "node_id"
                    | "event_id"
                    | "s3_key"
                    | "etag"
                    | "final_etag"
                    | "created_at"
                    | "updated_at"
                    | "expires_at"
            ) =>
        {
            a.len() == b.len()
        }
        // Ids and leases begin with a number that grows with time.
        (Value::String(a), Value::String(b)) if matches!(name, "id" | "lease") && a != b => {
            let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
            digits(a) == digits(b) && digits(a) > 10
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b, name))
        }
        // A task may take no time at all, and a second may end between two calls.
        (Value::Number(_), Value::Number(_))
            if matches!(name, "duration_ms" | "speed_per_second" | "max_speed_per_second" | "timestamp") =>
        {
            true
        }
        (Value::Number(a), Value::Number(b))
            if name.ends_with("_ms") || matches!(name, "bytes" | "fence") =>
        {
            // "Now" and "never" are facts, not moments.
            (a.as_u64() == Some(0)) == (b.as_u64() == Some(0))
        }
        _ => shown == told,
    }
}

/// Where the documents say the server is.
const SHOWN: &str = "http://127.0.0.1:7420";

/// Runs every `sh` block that is followed by a `json` block and compares line by line.
fn run_examples(document: &str, served: &Served, here: &Path) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = blocks(&text);
    let programs = Path::new(env!("CARGO_BIN_EXE_quaymaster")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut examples = 0;
    for pair in blocks.windows(2) {
        let [(shell, script, line), (json, shown, _)] = pair else { unreachable!() };
        if shell != "sh" || json != "json" {
            continue;
        }
        let mut run = Command::new("sh");
        let address = format!("http://{}", served.address);
        let script = script.replace("curl -s", "curl -sS -w '\\n'").replace(SHOWN, &address);
        run.args(["-euc", &script]).current_dir(here).env_clear();
        run.env("PATH", &path).stdin(Stdio::null());
        // A page may only use what it tells its reader to set.
        if text.contains(&format!("`Q={SHOWN}`")) {
            run.env("Q", address);
        }
        let told = said(&mut run);
        assert_eq!(told.code, 0, "{document}:{line}: {told:?}");
        let parse = |text: &str| -> Vec<Value> {
            let lines = text.lines().filter(|line| !line.is_empty());
            lines
                .map(|text| {
                    serde_json::from_str(text).unwrap_or_else(|_| panic!("{document}:{line}: {text}"))
                })
                .collect()
        };
        let (shown, told) = (parse(shown), parse(&told.out));
        let equal = shown.len() == told.len() && shown.iter().zip(&told).all(|(a, b)| same(a, b, ""));
        assert!(equal, "{document}:{line}\n shown {shown:#?}\n told  {told:#?}");
        examples += 1;
    }
    examples
}

/// Every page that is for users.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    let systems = std::fs::read_dir(root.join("systems")).unwrap();
    let folders = systems.map(|entry| entry.unwrap().path()).chain([root.join("docs")]);
    for folder in folders.filter(|path| path.is_dir()) {
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(files.filter(|path| path.extension().is_some_and(|kind| kind == "md")));
    }
    pages
}

/// Whoever copies an example must not sit before it for ever when something else is wrong.
#[test]
fn no_example_waits_without_a_bound() {
    let pages = pages();
    assert!(pages.len() > 20, "{pages:?}");
    for page in pages {
        for (language, script, line) in blocks(&std::fs::read_to_string(&page).unwrap()) {
            let loops = script.lines().any(|line| {
                let mut words = line.split([' ', ';', '(', '{']);
                words.any(|word| word == "until" || word == "while")
            });
            let waits = language == "sh" && loops && script.contains("sleep");
            assert!(!waits, "{}:{line}: a loop of a known number of rounds ends", page.display());
        }
    }
}

#[test]
fn the_examples_of_the_http_page_are_true() {
    let folder = folder(&[]);
    let served = Served::start(folder.path(), &["--store", "memory"]);
    assert_eq!(run_examples("docs/http.md", &served, folder.path()), 9);
    assert_eq!(served.stop().code, 0);
}

#[test]
fn the_examples_of_the_idempotency_page_are_true() {
    let folder = folder(&[]);
    let served = Served::start(folder.path(), &["--store", "memory"]);
    assert_eq!(run_examples("docs/idempotency.md", &served, folder.path()), 4);
    assert_eq!(served.stop().code, 0);
}

#[test]
fn the_examples_of_the_locks_page_are_true() {
    let folder = folder(&[]);
    let served = Served::start(folder.path(), &["--store", "memory"]);
    assert_eq!(run_examples("docs/locks.md", &served, folder.path()), 3);
    assert_eq!(served.stop().code, 0);
}

#[test]
fn the_examples_of_the_queues_page_are_true() {
    let folder = folder(&[]);
    let served = Served::start(folder.path(), &["--store", "memory"]);
    assert_eq!(run_examples("docs/queues.md", &served, folder.path()), 6);
    assert_eq!(served.stop().code, 0);
}

#[test]
fn the_examples_of_the_stats_page_are_true() {
    let folder = folder(&[]);
    let served = Served::start(folder.path(), &["--store", "memory"]);
    assert_eq!(run_examples("docs/stats.md", &served, folder.path()), 2);
    assert_eq!(served.stop().code, 0);
}

#[test]
fn the_examples_of_the_uploads_page_are_true() {
    let folder = folder(&[]);
    let served = Served::start(folder.path(), &["--store", "memory"]);
    assert_eq!(run_examples("docs/uploads.md", &served, folder.path()), 4);
    assert_eq!(served.stop().code, 0);
}

#[test]
fn the_examples_of_the_uploads_system_are_true() {
    let (folder, redis) = (folder(&[]), RedisServer::start(RedisConfig::default()));
    let page = include_str!("../../../../systems/uploads/README.md");
    let blocks = blocks(page);
    let [(_, begin, _), (_, alone, _), (_, shown, _), (_, together, _)] = &blocks[..] else {
        panic!("{blocks:?}")
    };
    let project = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let programs = Path::new(env!("CARGO_BIN_EXE_quaymaster")).parent().unwrap();
    let begin = set_up(begin, project, programs, folder.path());
    // Object store, database and broker are not here: without what names them they are files of the folder.
    let services = |line: &str| line.starts_with("export UPLOAD_") || line.starts_with("export AWS_");
    let together: Vec<&str> = together.lines().filter(|line| !services(line)).collect();
    let listen = crate::address::free_address().to_string();
    let together = together
        .join("\n")
        .replace("redis://127.0.0.1:6379", &redis.url())
        .replace("127.0.0.1:7420", &listen)
        .replace("100M", "20M");
    let trap = "trap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT\nset -eu";
    let script = format!("{trap}\n{begin}{alone}echo\n{together}\n");
    let mut shell = Command::new("setpriv");
    shell.args(["--pdeathsig", "KILL", "--", "bash", "-c", &script]);
    shell.env_clear().env("PATH", std::env::var("PATH").unwrap()).env("QUAYMASTER_LISTEN", &listen);
    let told = said(&mut shell);
    let logs = ["serve.log", "worker.log"].map(|log| std::fs::read_to_string(folder.path().join(log)));
    assert_eq!(told.code, 0, "{told:?}\n{logs:?}");
    let (one, put) = told.out.split_once("\n\n").unwrap_or_else(|| panic!("{told:?}"));
    let (one, shown): (Value, Value) =
        (serde_json::from_str(one).unwrap(), serde_json::from_str(shown).unwrap());
    assert!(same(&shown, &one, ""), "shown {shown:#}\n told {one:#}");
    assert!(put.starts_with("big.bin\n") && put.contains("sha256"), "{told:?}");
}

#[test]
fn the_examples_of_the_batches_page_are_true() {
    let folder = folder(&[]);
    let served = Served::start(folder.path(), &["--store", "memory"]);
    assert_eq!(run_examples("docs/batches.md", &served, folder.path()), 3);
    assert_eq!(served.stop().code, 0);
}

#[test]
fn the_examples_of_the_runs_page_are_true() {
    let folder = folder(&[]);
    let served = Served::start(folder.path(), &["--store", "memory"]);
    assert_eq!(run_examples("docs/runs.md", &served, folder.path()), 3);
    assert_eq!(served.stop().code, 0);
}

#[test]
fn the_examples_of_the_events_page_are_true() {
    let folder = folder(&[]);
    let served = Served::start(folder.path(), &["--store", "memory"]);
    assert_eq!(run_examples("docs/events.md", &served, folder.path()), 3);
    assert_eq!(served.stop().code, 0);
}

#[test]
fn the_examples_of_the_caches_page_are_true() {
    let folder = folder(&[]);
    let served = Served::start(folder.path(), &["--store", "memory"]);
    assert_eq!(run_examples("docs/caches.md", &served, folder.path()), 4);
    assert_eq!(served.stop().code, 0);
}

/// `console` blocks: what stands after `$` is run, and says what stands below it.
#[test]
fn the_commands_of_the_command_line_page_say_what_it_shows() {
    let folder = folder(&[]);
    let page = include_str!("../../../../docs/cli.md");
    let programs = Path::new(env!("CARGO_BIN_EXE_quaymaster")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut commands = 0;
    for (_, text, line) in blocks(page).into_iter().filter(|(language, ..)| language == "console") {
        for step in text.split("$ ").skip(1) {
            let (script, shown) = step.split_once('\n').unwrap();
            let mut run = Command::new("sh");
            run.args(["-c", script]).current_dir(folder.path()).env_clear().env("PATH", &path);
            // Secrets readable by the bundled schemas are a warning on stderr, and no part of the answer.
            let told = said(&mut run);
            assert_eq!(
                (told.code, told.out.as_str()),
                (0, shown),
                "docs/cli.md:{line} {script}: {}",
                told.err
            );
            commands += 1;
        }
    }
    assert_eq!(commands, 8);
}

/// Runs the `sh` blocks of a page in one shell; each must print the `text` block below it. How many did.
fn run_in_one_shell(document: &str, folder: &Path) -> usize {
    const MARK: &str = "--- end of block";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = blocks(&text);
    let (mut script, mut shown) = ("set -eu\n".to_owned(), Vec::new());
    for (at, (language, block, line)) in blocks.iter().enumerate() {
        if language == "sh" {
            script.extend([block.as_str(), "echo '", MARK, "'\n"]);
            let below = blocks.get(at + 1).filter(|(language, ..)| language == "text");
            shown.push((line, below.map_or("", |(_, text, _)| text.as_str())));
        }
    }
    let programs = Path::new(env!("CARGO_BIN_EXE_quaymaster")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    // Whatever it started ends with it.
    let script = format!("trap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT\n{}", at_own_address(&script));
    let mut shell = Command::new("setpriv");
    shell.args(["--pdeathsig", "KILL", "--", "bash", "-c", &script]);
    let told = said(shell.current_dir(folder).env_clear().env("PATH", path));
    assert_eq!(told.code, 0, "{document}: {told:?}");
    let told: Vec<&str> = told.out.split(&format!("{MARK}\n")).collect();
    for ((line, shown), told) in shown.iter().zip(told) {
        assert_eq!(told, *shown, "{document}:{line}");
    }
    shown.iter().filter(|(_, text)| !text.is_empty()).count()
}

#[test]
fn the_examples_of_the_porting_page_are_true() {
    assert_eq!(run_in_one_shell("docs/porting.md", folder(&[]).path()), 3);
}

#[test]
fn the_examples_of_the_encryption_page_are_true() {
    assert_eq!(run_in_one_shell("docs/encryption.md", folder(&[]).path()), 1);
}

#[test]
fn the_examples_of_the_backup_page_are_true() {
    assert_eq!(run_in_one_shell("docs/backup.md", folder(&[]).path()), 3);
}

#[test]
fn the_examples_of_the_outages_page_are_true() {
    let page = include_str!("../../../../docs/outages.md");
    let files: Vec<String> = blocks(page)
        .into_iter()
        .filter(|(language, ..)| language == "toml")
        .map(|(_, toml, _)| toml)
        .collect();
    let [schema, settings] = &files[..] else { panic!("{files:?}") };
    let folder = folder(&[("schema.toml", schema), ("quaymaster.toml", settings)]);
    let store = format!("redis://{}", crate::address::free_address());
    let mut serve = command(folder.path());
    serve.args(["serve", "--listen", &any_port(), "--schema", "schema.toml", "--store", &store]);
    let served = Served::spawn(&mut serve);
    assert_eq!(run_examples("docs/outages.md", &served, folder.path()), 1);
    assert!(folder.path().join("outage.db").exists(), "beside the settings");
    assert_eq!(served.stop().code, 0);
}

#[test]
fn the_examples_of_the_guards_page_are_true() {
    let folder = folder(&[]);
    let served = Served::start(folder.path(), &["--store", "memory"]);
    assert_eq!(run_examples("docs/guards.md", &served, folder.path()), 4);
    assert_eq!(served.stop().code, 0);
}

#[test]
fn the_examples_of_the_readme_are_true() {
    let folder = folder(&[]);
    let served = Served::start(folder.path(), &[]);
    assert_eq!(run_examples("README.md", &served, folder.path()), 2);
    assert_eq!(served.stop().code, 0);
}

#[test]
fn the_settings_of_the_configuration_page_are_accepted() {
    let page = include_str!("../../../../docs/configuration.md");
    let files: Vec<String> = blocks(page)
        .into_iter()
        .filter(|(language, ..)| language == "toml")
        .map(|(_, toml, _)| toml)
        .collect();
    let [short, toml] = &files[..] else { panic!("{files:?}") };
    let alone = folder(&[("quaymaster.toml", short)]);
    let served = Served::spawn(command(alone.path()).args(["serve", "--listen", &any_port()]));
    assert!(served.line.contains("quaymaster-data"), "{}", served.line);
    assert_eq!(served.stop().code, 0);
    // The page shows every setting; those that only Redis has are read and not used here. Its comment has one that wants
    // a table which is there.
    let table = "# nodes = {";
    assert!(toml.contains(table), "{toml}");
    let toml = &toml.replace(table, "nodes = {");
    let own = "[stats.web]\nkey = \"web:\"\n[limit.callers]\nkey = \"callers:{identifier}\"\n\
               algorithm = \"fixed_window\"\nlimit = 100\nwindow = \"1m\"\n";
    let schema = format!("{}{own}", crate::process::SCHEMA);
    let folder = folder(&[("quaymaster.toml", toml), ("schema.toml", &schema)]);
    let mut serve = command(folder.path());
    serve.args(["serve", "--listen", &any_port(), "--store", "memory"]);
    for name in ["QUAYMASTER_WRITE_TOKEN", "QUAYMASTER_READ_TOKEN"] {
        assert!(page.contains(&format!("`{name}`")), "the page says that {name} is wanted");
        serve.env(name, format!("{name}-long-enough"));
    }
    for name in ["REDIS_PASSWORD", "S3_SECRET_ACCESS_KEY"] {
        assert!(page.contains(&format!("`{name}`")), "the page says that {name} is wanted");
        serve.env(name, "p");
    }
    let served = Served::spawn(&mut serve);
    assert!(served.line.contains("schemas: shop"), "{}", served.line);
    assert_eq!(served.ask("GET", "/v1/status", "").0, 401, "its tokens are in force");
    for _ in 0..99 {
        served.ask("GET", "/v1/status", "");
    }
    assert_eq!(served.ask("GET", "/v1/status", "").0, 429, "its limit is in force");
    assert_eq!(served.ask("GET", "/healthz", "").0, 200, "and not on probes");
    assert_eq!(served.stop().code, 0);
}

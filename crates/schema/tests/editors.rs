//! Editors say of a schema file what the reader says, as far as one field shows it.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "common/editor.rs"]
mod editor;

use std::path::{Path, PathBuf};

use editor::Editor;
use quaymaster_schema::{Diagnostic, Severity, Source, json_schema, load};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

/// The schema files of the bundled systems and of the benches.
fn files() -> Vec<PathBuf> {
    let root = root();
    let folders = entries(&root.join("systems")).into_iter().chain([root.join("benches")]);
    let inside = folders.filter(|folder| folder.is_dir()).flat_map(|folder| entries(&folder));
    inside
        .filter(|path| path.extension().is_some_and(|end| end == "toml") && !path.ends_with("Cargo.toml"))
        .collect()
}

/// The whole schema files that the pages show, each with the page's name.
fn examples() -> Vec<(String, String)> {
    let pages = entries(&root().join("docs")).into_iter().chain([root().join("README.md")]);
    let mut examples = Vec::new();
    for page in pages.filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = std::fs::read_to_string(&page).unwrap();
        let blocks = text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
        let whole = blocks.filter(|block| block.lines().any(|line| line == "[schema]"));
        examples.extend(whole.map(|block| (page.display().to_string(), block.to_owned())));
    }
    examples
}

fn errors(text: &str) -> Vec<Diagnostic> {
    // A secret has no default.
    let env = |name: &str| name.ends_with("_SECRET").then(|| "hunter2".to_owned());
    let found = load(&[Source { name: "s.toml", text }], &env).diagnostics;
    found.into_iter().filter(|problem| problem.severity == Severity::Error).collect()
}

#[test]
fn every_schema_file_of_the_repository_pleases_the_reader_and_editors() {
    let editor = Editor::with(&json_schema());
    let files: Vec<(String, String)> = files()
        .into_iter()
        .map(|path| (path.display().to_string(), std::fs::read_to_string(path).unwrap()))
        .collect();
    let examples = examples();
    assert!(files.len() >= 7 && examples.len() >= 14, "{} {}", files.len(), examples.len());
    for (name, text) in files.into_iter().chain(examples) {
        assert_eq!(errors(&text), [], "{name}");
        assert_eq!(editor.refuses(&text), None, "{name}");
    }
}

#[test]
fn every_schema_file_of_the_repository_leads_an_editor_to_the_json_schema() {
    let wanted = root().join("schemas/quaymaster.schema.json");
    for path in files() {
        let text = std::fs::read_to_string(&path).unwrap();
        let named = text.lines().next().and_then(|line| line.strip_prefix("#:schema "));
        let named = named.unwrap_or_else(|| panic!("{} does not begin with `#:schema`", path.display()));
        assert_eq!(path.parent().unwrap().join(named).canonicalize().unwrap(), wanted, "{}", path.display());
    }
    let directive = "#:schema ./quaymaster.schema.json\n";
    for (page, text) in examples() {
        assert!(text.starts_with(directive), "{page}");
    }
    // There a part of a file is an example, too.
    let reference = std::fs::read_to_string(root().join("docs/schema.md")).unwrap();
    for block in reference.split("```toml\n").skip(1) {
        assert!(block.starts_with(directive), "{block}");
    }
}

#[test]
fn a_file_that_has_no_error_is_refused_by_no_editor() {
    let editor = Editor::with(&json_schema());
    for path in entries(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lints")) {
        let text = std::fs::read_to_string(&path).unwrap();
        if path.to_string_lossy().ends_with(".good.toml") {
            assert_eq!(editor.refuses(&text), None, "{}", path.display());
        }
    }
}

/// Lints that one field shows by itself, so that an editor finds them too.
const SEEN: &[&str] = &[
    "toml-syntax",
    "unknown-kind",
    "unknown-field",
    "missing-field",
    "wrong-type",
    "bad-value",
    "bad-unit",
    "bad-name",
    "bad-pattern",
    "secret-in-file",
];

#[test]
fn a_mistake_in_one_field_is_seen_by_the_reader_and_by_editors() {
    let editor = Editor::with(&json_schema());
    for code in SEEN {
        let file = format!("{}/tests/lints/{code}.bad.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(file).unwrap();
        assert!(errors(&text).iter().any(|problem| problem.code == *code), "{code}");
        assert!(editor.refuses(&text).is_some(), "{code}");
    }
    let limit = "[limit.a]\nkey = \"a:{id}\"\nalgorithm = \"sliding_log\"\nlimit = 10\nwindow = \"60s\"\n";
    let queue = "[queue.q]\nmax_size = 10\n";
    for (text, code) in [
        (String::new(), "missing-field"),
        ("name = \"x\"\n".to_owned(), "unknown-kind"),
        ("limit = 1\n".to_owned(), "wrong-type"),
        ("[limit]\na = 1\n".to_owned(), "wrong-type"),
        (format!("schema = 1\n{limit}"), "wrong-type"),
        (format!("[schema]\nname = \"\"\n{limit}"), "bad-value"),
        (format!("[schema]\neviction = \"lru\"\n{limit}"), "bad-value"),
        (format!("[schema]\nprefix = \"{{id}}:\"\n{limit}"), "bad-pattern"),
        (limit.replace("limit = 10", "limit = -1"), "wrong-type"),
        (limit.replace("limit = 10", "limit = 10.5"), "wrong-type"),
        (limit.replace("limit = 10", "limit = { env = \"L\", default = \"ten\" }"), "wrong-type"),
        (limit.replace("60s", "60 s"), "bad-unit"),
        (limit.replace("60s", "s60"), "bad-unit"),
        (limit.replace("\"60s\"", "60"), "wrong-type"),
        (limit.replace("\"60s\"", "{ env = \"W\", unit = \"hours\", default = \"1h\" }"), "bad-unit"),
        (limit.replace("{id}", "{id"), "bad-pattern"),
        (limit.replace("[limit.a]", "[limit.\"a b\"]"), "bad-name"),
        (format!("{limit}on_outage = \"miss\"\n"), "bad-value"),
        (format!("{limit}sensitive = \"yes\"\n"), "wrong-type"),
        (format!("{limit}ttl = \"never\"\n"), "no-ttl"),
        (format!("{queue}retry = 3\n"), "wrong-type"),
        (format!("{queue}retry = {{ attempts = 3 }}\n"), "unknown-field"),
        (format!("{queue}push = {{ timeout = \"5s\" }}\n"), "missing-field"),
        (format!("{queue}push = {{ url = \"ftp://x\" }}\n"), "bad-value"),
        (format!("{queue}push = {{ url = \"http://x\", result_to = \"lock.x\" }}\n"), "bad-value"),
        (format!("{queue}pressure_at = 80\n"), "wrong-type"),
        (format!("{queue}fields = {{ a = 1 }}\n"), "wrong-type"),
        ("[guard.g]\nlimits = \"a\"\n".to_owned(), "wrong-type"),
        ("[upload.u]\nobjects = \"ftp://x\"\n".to_owned(), "bad-value"),
        ("[upload.u]\nchunk_min = \"5 MiB\"\n".to_owned(), "bad-unit"),
        ("[cache.c]\nkey = \"c:{id}\"\n".to_owned(), "no-ttl"),
        ("[key.k]\nkey = \"k\"\ntype = \"json\"\nttl = \"1h\"\n".to_owned(), "bad-value"),
    ] {
        let found = errors(&text);
        assert!(found.iter().any(|problem| problem.code == code), "{code}: {text}{found:?}");
        assert!(editor.refuses(&text).is_some(), "{text}");
    }
}

//! `init` and `schema --json-schema`: a folder to start from.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::process::{Served, any_port, command, folder, run, said};

const FILES: [&str; 3] = ["schema.toml", "quaymaster.toml", "quaymaster.schema.json"];

#[test]
fn init_writes_a_schema_that_passes_check_and_says_what_to_run_next() {
    let folder = folder(&[]);
    let told = run(folder.path(), &["init"]);
    assert_eq!((told.code, told.err.as_str()), (0, ""), "{told:?}");
    for file in FILES {
        assert!(told.out.contains(&format!("wrote {file}\n")), "{}", told.out);
    }
    let checked = run(folder.path(), &["check", "schema.toml"]);
    assert_eq!((checked.code, checked.out.as_str()), (0, "7 resources, 0 errors, 0 warnings\n"));
    // What it says comes next works; `serve` does not end by itself.
    let next: Vec<&str> = told.out.split("next:\n").nth(1).unwrap().lines().map(str::trim).collect();
    for line in next.iter().filter(|line| **line != "quaymaster serve") {
        let words: Vec<&str> = line.split(' ').skip(1).collect();
        assert_eq!(run(folder.path(), &words).code, 0, "{line}");
    }
    assert!(next.contains(&"quaymaster serve"), "{next:?}");
}

#[test]
fn the_name_of_the_schema_is_the_callers() {
    let folder = folder(&[]);
    let told = run(folder.path(), &["init", "till-2", "--json"]);
    assert_eq!((told.code, &told.json()["name"]), (0, &json!("till-2")), "{told:?}");
    assert_eq!(told.json()["files"], json!(FILES));
    let docs = run(folder.path(), &["docs", "schema.toml"]).out;
    assert!(docs.starts_with("# till-2\n") && docs.contains("`till-2:rl:{customer}:{minute}`"), "{docs}");
    for wrong in ["", "a b", "a:b", "a\"", "ä", &"x".repeat(65)] {
        let told = run(folder.path(), &["init", "--force", wrong]);
        assert_eq!(told.code, 2, "{wrong:?}: {told:?}");
        assert!(told.err.contains("1 to 64 letters"), "{told:?}");
    }
}

#[test]
fn init_overwrites_nothing_unless_it_is_told_to() {
    for there in FILES {
        let folder = folder(&[(there, "mine")]);
        let read = |file: &str| std::fs::read_to_string(folder.path().join(file)).ok();
        let told = run(folder.path(), &["init"]);
        assert_eq!((told.code, told.out.as_str()), (2, ""), "{told:?}");
        assert!(told.err.contains(there) && told.err.contains("--force"), "{told:?}");
        for file in FILES {
            assert_eq!(read(file).as_deref(), (file == there).then_some("mine"), "all or nothing: {file}");
        }
        assert_eq!(run(folder.path(), &["init", "--force"]).code, 0);
        assert_ne!(read(there).as_deref(), Some("mine"));
    }
    let folder = folder(&[]);
    let set = said(command(folder.path()).args(["init"]).env("QUAYMASTER_FORCE", "1"));
    assert_eq!(set.code, 0);
    let set = said(command(folder.path()).args(["init"]).env("QUAYMASTER_FORCE", "1"));
    assert_eq!(set.code, 2, "no variable lets it overwrite");
}

/// The commands in the comments, without their indentation.
fn commands(schema: &str, program: &str) -> Vec<String> {
    let lines = schema.lines().filter_map(|line| line.strip_prefix("#   "));
    lines.filter(|line| line.starts_with(program)).map(str::to_owned).collect()
}

#[test]
fn serve_loads_the_schema_and_the_commands_in_its_comments_work() {
    let folder = folder(&[]);
    assert_eq!(run(folder.path(), &["init", "corner"]).code, 0);
    let schema = std::fs::read_to_string(folder.path().join("schema.toml")).unwrap();
    let served = Served::spawn(command(folder.path()).args(["serve", "--listen", &any_port()]));
    assert!(served.line.contains("schemas: corner"), "{}", served.line);
    let (calls, requests) = (commands(&schema, "quaymaster "), commands(&schema, "curl "));
    assert!(calls.len() >= 10 && requests.len() == 1, "{calls:?} {requests:?}");
    for line in calls {
        let line = line.replace("quaymaster ", &format!("{} ", env!("CARGO_BIN_EXE_quaymaster")));
        let told = said(shell(&line).current_dir(folder.path()));
        assert_eq!(told.code, 0, "{line}: {told:?}");
    }
    let line = requests[0].replace("127.0.0.1:7420", &served.address);
    let told = said(shell(&line).current_dir(folder.path()));
    assert_eq!((told.code, &told.json()["allowed"]), (0, &json!(true)), "{told:?}");
    let found = served.take_get("/v1/cache/product/get?key.sku=mug");
    assert_eq!(found["hit"], true, "the commands used the server's data: {found}");
    assert_eq!(served.stop().code, 0);
}

fn shell(line: &str) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-euc", line])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .stdin(Stdio::null());
    shell
}

#[test]
fn the_json_schema_is_printed_as_the_repository_has_it() {
    let folder = folder(&[]);
    let told = run(folder.path(), &["schema", "--json-schema"]);
    assert_eq!((told.code, told.err.as_str()), (0, ""));
    assert!(told.out == include_str!("../../../../schemas/quaymaster.schema.json"));
    assert_eq!(run(folder.path(), &["schema"]).code, 2, "there is nothing else to print yet");
}

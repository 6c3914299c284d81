//! The store's password, and where it may come from.

use std::process::Command;

use crate::process::{Said, command, folder, said};
use crate::servers::{RedisConfig, RedisServer};

const PASSWORD: &str = "s3cret of the store";
const VARIABLES: [&str; 2] = ["QUAYMASTER_STORE_PASSWORD", "QUAYMASTER_STORE_PASSWORD_FILE"];

fn guarded() -> RedisServer {
    RedisServer::start(RedisConfig::default().line(format!("requirepass \"{PASSWORD}\"")))
}

fn health(command: &mut Command) -> Said {
    let told = said(command.arg("health"));
    assert!(!told.out.contains(PASSWORD) && !told.err.contains(PASSWORD), "{told:?}");
    assert!(!told.err.contains("s3cret"), "{told:?}");
    told
}

#[test]
fn the_password_comes_from_a_variable_or_a_file() {
    let server = guarded();
    let settings = format!("[store]\nurl = \"{}\"\npassword_file = \"secret\"\n", server.url());
    let (lines, windows) = (format!("{PASSWORD}\n"), format!("{PASSWORD}\r\n"));
    let folder = folder(&[
        ("secret", &lines),
        ("bare", PASSWORD),
        ("windows", &windows),
        ("two", &format!("{lines}\n")),
        ("other.toml", &settings),
    ]);
    let here = folder.path();
    let given = |variables: &[(&str, &str)]| {
        let mut command = command(here);
        command.env("QUAYMASTER_STORE", server.url()).envs(variables.iter().copied());
        health(&mut command)
    };
    let refused = given(&[]);
    assert_eq!(refused.code, 3, "{refused:?}");
    let [word, file] = VARIABLES;
    for good in [&[(word, PASSWORD)][..], &[(file, "secret")], &[(file, "bare")], &[(file, "windows")]] {
        let told = given(good);
        assert!(told.code == 0 && told.err.is_empty(), "{good:?}: {told:?}");
    }
    // Only the end of the last line is cut off.
    assert_eq!(given(&[(file, "two")]).code, 3);
    // Set to nothing is not set.
    assert_eq!(given(&[(word, PASSWORD), (file, "")]).code, 0);
    assert_eq!(health(command(here).args(["--config", "other.toml"])).code, 0, "by the settings");
}

#[test]
fn a_password_that_is_given_twice_or_cannot_be_read_is_refused() {
    let folder = folder(&[
        ("secret", PASSWORD),
        ("empty", "\n"),
        (
            "both.toml",
            "[store]\nurl = \"redis://127.0.0.1:1\"\npassword = { env = \"P\" }\npassword_file = \"secret\"\n",
        ),
    ]);
    let [word, file] = VARIABLES;
    let refused = |variables: &[(&str, &str)], store: &str, parts: &[&str]| {
        let mut command = command(folder.path());
        command.envs(variables.iter().copied());
        if store.is_empty() {
            command.args(["--config", "both.toml"]).env("P", PASSWORD);
        } else {
            command.env("QUAYMASTER_STORE", store);
        }
        let told = health(&mut command);
        assert_eq!(told.code, 2, "{told:?}");
        assert!(parts.iter().all(|part| told.err.contains(part)), "{parts:?}: {told:?}");
    };
    let plain = "redis://127.0.0.1:1";
    refused(&[(word, PASSWORD), (file, "secret")], plain, &[word, file, "both set"]);
    refused(&[(file, "missing")], plain, &[file, "missing"]);
    refused(&[(file, "empty")], plain, &[file, "empty"]);
    refused(&[(word, PASSWORD)], "redis://:s3cret-too@127.0.0.1:1", &["store: the URL has a password"]);
    refused(&[], "", &["store.password and store.password_file"]);
    refused(&[], "redis://s3cret-too@127.0.0.1:1", &["a user and no password", word, file]);
}

#[test]
fn a_user_in_the_url_takes_the_password_from_the_variable() {
    let server = RedisServer::start(RedisConfig::default().line("user worker on >s3cret-too ~* &* +@all"));
    let folder = folder(&[]);
    let url = format!("redis://worker@{}", server.address());
    for (password, code) in [("s3cret-too", 0), ("wrong", 3)] {
        let mut command = command(folder.path());
        command.env("QUAYMASTER_STORE", &url).env(VARIABLES[0], password);
        assert_eq!(health(&mut command).code, code, "{password}");
    }
}

#[test]
fn a_password_on_the_command_line_is_warned_of_once() {
    let server = guarded();
    let folder = folder(&[]);
    let url = format!("redis://:{}@{}", PASSWORD.replace(' ', "%20"), server.address());
    let told = health(command(folder.path()).args(["--log", "warn"]).env("QUAYMASTER_STORE", &url));
    assert!(told.code == 0 && told.err.is_empty(), "a variable is nobody else's to read: {told:?}");
    let told = said(command(folder.path()).args(["health", "--store", &url]));
    assert_eq!(told.code, 0, "{told:?}");
    let warnings: Vec<&str> =
        told.err.lines().filter(|line| line.contains("--store has a password")).collect();
    assert_eq!(warnings.len(), 1, "{told:?}");
    assert!(VARIABLES.iter().all(|name| warnings[0].contains(name)), "{told:?}");
    assert!(!told.err.contains("s3cret"), "{told:?}");
    let told =
        health(command(folder.path()).env(VARIABLES[0], PASSWORD).env("QUAYMASTER_STORE", server.url()));
    assert!(told.code == 0 && told.err.is_empty(), "{told:?}");
}

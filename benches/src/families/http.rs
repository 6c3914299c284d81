//! `limit take` over HTTP beside webdis, which runs the same script by EVALSHA: 64 keep-alive
//! connections each, one Redis behind each of them.

use std::process::Command;

use anyhow::{Context as _, Result};
use tokio::runtime::Runtime;

use crate::contest::Contest;
use crate::ours::{SCHEMA, caller};
use crate::peer::wrk::{self, Request};
use crate::process::{Owned, Redis, free_port};
use crate::recorder::Call;
use crate::{Findings, Settings};

/// Prepared requests: enough that no caller is special, few enough that wrk's own cache holds them.
const CALLERS: u64 = 1_000;

pub(super) fn run(settings: &Settings, runtime: &Runtime, findings: &mut Findings) -> Result<()> {
    let folder = settings.folder()?;
    let redis = Redis::start(folder.path(), None::<&str>)?;
    let call = Call::of_take(runtime)?;
    call.load_into(&redis)?;
    let (ours_port, webdis_port) = (free_port()?, free_port()?);
    let schema = folder.path().join("schema.toml");
    std::fs::write(&schema, SCHEMA)?;

    let program = settings
        .server
        .canonicalize()
        .with_context(|| format!("{}: build it first, as scripts/bench does", settings.server.display()))?;
    let server = |store: &str, port: u16| {
        let mut command = Command::new(&program);
        // In a folder without a configuration of its own.
        command.current_dir(folder.path()).arg("serve").arg("--schema").arg(&schema);
        command.args(["--store", store, "--listen", &format!("127.0.0.1:{port}")]);
        Owned::serving(command, port)
    };
    let settings_file = folder.path().join("webdis.json");
    std::fs::write(&settings_file, webdis_settings(redis.port, webdis_port, folder.path()))?;
    let mut command = Command::new("webdis");
    command.arg(&settings_file);
    let webdis = Owned::serving(command, webdis_port)?;

    let takes: Vec<Request> = (0..CALLERS)
        .map(|number| Request {
            method: "POST",
            path: "/v1/limit/spread/take".into(),
            body: format!(r#"{{"key":{{"id":"{}"}}}}"#, caller(number)),
        })
        .collect();
    let evalshas: Vec<Request> = (0..CALLERS)
        .map(|number| Request {
            method: "GET",
            // webdis takes the command's words from the path; a colon must be spelled out.
            path: format!("/{}", call.evalsha(&caller(number)).join("/").replace(':', "%3A")),
            body: String::new(),
        })
        .collect();

    for (name, store, target) in
        [("server on Redis", redis.url(), Some(1.2)), ("server, embedded in memory", "memory".into(), None)]
    {
        let ours = server(&store, ours_port)?;
        let contest = Contest {
            family: "http",
            op: "limit take fixed_window".into(),
            ours: name.into(),
            theirs: "webdis EVALSHA".into(),
            concurrency: 64,
            target,
        };
        let processes = |pid| [("server", pid), ("redis", redis.pid())];
        findings.outcomes.push(contest.run(
            settings,
            || wrk::load(ours_port, &takes, &processes(ours.pid()), settings.lasting()),
            || wrk::load(webdis_port, &evalshas, &processes(webdis.pid()), settings.lasting()),
        )?);
    }
    Ok(())
}

/// Two threads, as this machine has cores; a pool deep enough that none waits for a connection.
fn webdis_settings(redis: u16, http: u16, folder: &std::path::Path) -> String {
    serde_json::json!({
        "redis_host": "127.0.0.1",
        "redis_port": redis,
        "http_host": "127.0.0.1",
        "http_port": http,
        "threads": 2,
        "pool_size": 8,
        "daemonize": false,
        "verbosity": 0,
        "logfile": folder.join("webdis.log"),
    })
    .to_string()
}

//! Uploads on the command line: files put straight on the store and by a server, interrupted, gone on with, looked at.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{Said, Served, Started, any_port, ask, command, folder, run, said};
use crate::servers::{RedisConfig, RedisServer};

/// A file of so many bytes that no two chunks share.
pub(crate) fn file(here: &Path, name: &str, size: usize) -> Vec<u8> {
    let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8 ^ (at >> 20) as u8).collect();
    std::fs::write(here.join(name), &bytes).unwrap();
    bytes
}

pub(crate) fn put(here: &Path, words: &[&str]) -> Said {
    run(here, &[&["upload", "put", "--json"], words].concat())
}

pub(crate) fn first(said: &Said) -> Value {
    assert_eq!(said.code, 0, "{said:?}");
    said.json()["files"][0].clone()
}

#[test]
fn a_file_is_uploaded_on_the_embedded_default_in_one_command() {
    let folder = folder(&[]);
    let here = folder.path();
    let bytes = file(here, "a.bin", 12 << 20);
    let done = first(&put(here, &["a.bin", "--mime-type", "application/x-test"]));
    assert_eq!((&done["size"], &done["kept_bytes"]), (&json!(bytes.len()), &json!(0)));
    let id = done["upload_id"].as_str().unwrap();
    let status = run(here, &["upload", "status", "documents", "--upload-id", id, "--json"]).json();
    assert_eq!((&status["status"], &status["durable_chunks"]), (&json!("COMPLETED"), &json!(2)), "{status}");
    assert!(
        here.join("quaymaster-data/objects").is_dir() && here.join("quaymaster-data/uploads.db").is_file()
    );
    // The same file again is the same upload, unless it is wanted again.
    let again = first(&put(here, &["a.bin", "--mime-type", "application/x-test"]));
    assert_eq!((&again["upload_id"], &again["kept_bytes"]), (&done["upload_id"], &json!(bytes.len())));
    assert_eq!(again["sha256"], done["sha256"]);
    let another =
        first(&put(here, &["a.bin", "--mime-type", "application/x-test", "--again", "--no-verify"]));
    assert_ne!(another["upload_id"], done["upload_id"]);
    assert_eq!(another["sha256"], Value::Null);
    let events = run(here, &["upload", "events", "documents", "--json"]).json();
    assert_eq!(events["events"].as_array().unwrap().len(), 2, "{events}");
    // A server on the same folder has the same content.
    let served = Served::start(here, &[]);
    let (code, shown) = served.ask("GET", &format!("/v1/upload/documents/{id}"), "");
    assert_eq!(code, 200, "{shown}");
    assert_eq!(served.stop().code, 0);
}

#[test]
fn an_empty_file_several_files_and_what_is_no_file() {
    let folder = folder(&[("empty", ""), ("small", "abc")]);
    let here = folder.path();
    let both = put(here, &["empty", "small"]);
    let files = both.json()["files"].as_array().unwrap().clone();
    assert_eq!((both.code, files.len()), (0, 2), "{both:?}");
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!((files[0]["sha256"].as_str(), files[1]["sha256"].as_str()), (Some(empty), Some(abc)));
    let some = put(here, &["small", "missing", "."]);
    let ended = some.json()["files"].as_array().unwrap().clone();
    let sizes: Vec<&Value> = ended.iter().map(|file| &file["size"]).collect();
    assert_eq!((some.code, sizes), (2, vec![&json!(3), &Value::Null, &Value::Null]), "{some:?}");
    assert!(some.err.contains("cannot read missing") && some.err.contains("not a file"), "{some:?}");
    let table = run(here, &["upload", "put", "small"]);
    assert!(table.code == 0 && table.out.contains(&format!("sha256  {abc}")), "{table:?}");
    let nowhere = put(here, &["small", "--resource", "other"]);
    assert!(nowhere.code == 2 && nowhere.err.contains("documents"), "{nowhere:?}");
    let address = put(here, &["small", "--server", "ftp://x"]);
    assert!(address.code == 2 && address.err.contains("--server"), "{address:?}");
}

#[test]
fn an_interrupted_upload_to_a_server_goes_on_where_it_was() {
    let folder = folder(&[]);
    let here = folder.path();
    let bytes = file(here, "a.bin", 60 << 20);
    let served = Served::start(here, &["--store", "memory"]);
    let server = format!("http://{}", served.address);
    let words =
        ["a.bin", "--resource=documents", "--server", &server, "--parallel", "1", "--chunk-bytes", "5242880"];
    let mut sending = command(here);
    let sending = Started::spawn(sending.args(["upload", "put", "--json"]).args(words));
    let begun = Instant::now();
    while received(&served) < 2 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing came");
        std::thread::sleep(Duration::from_millis(1));
    }
    sending.stop_by(Signal::KILL);
    let done = first(&put(here, &words));
    let kept = done["kept_bytes"].as_u64().unwrap();
    assert!((10 << 20..60 << 20).contains(&kept), "{kept} bytes were there");
    assert_eq!(done["size"], json!(bytes.len()));
    assert_eq!(served.stop().code, 0);
}

/// How many chunks this process of the server has taken.
fn received(served: &Served) -> u64 {
    let family = "quaymaster_upload_chunks_total{upload=\"documents\",outcome=\"received\"} ";
    let metrics = served.ask("GET", "/metrics", "").1;
    metrics.lines().find_map(|line| line.strip_prefix(family)?.parse().ok()).unwrap_or(0)
}

#[test]
fn a_server_that_is_killed_again_and_again_costs_its_clients_nothing() {
    // Chunks that a dead server was sending are sent by the next one two seconds later.
    let folder = folder(&[("quaymaster.toml", "[uploads]\nlease = \"2s\"\n")]);
    let here = folder.path();
    let kills = if std::env::var_os("QUAYMASTER_SOAK").is_some() { 20 } else { 3 };
    let size = (kills + 2) * (30 << 20);
    let sha256 = {
        file(here, "a.bin", size);
        let said = std::process::Command::new("sha256sum").arg(here.join("a.bin")).output().unwrap();
        String::from_utf8(said.stdout).unwrap().split(' ').next().unwrap().to_owned()
    };
    let mut served = Served::start(here, &[]);
    let address = served.address.clone();
    let server = format!("http://{address}");
    let mut sending = command(here);
    sending.args([
        "upload",
        "put",
        "--json",
        "a.bin",
        "--resource=documents",
        "--server",
        &server,
        "--chunk-bytes",
        "5242880",
    ]);
    let mut sending = Started::spawn(sending.args(["--parallel", "3"]));
    for kill in 0..kills {
        let begun = Instant::now();
        while received(&served) < 1 + kill as u64 % 3 {
            assert!(!sending.has_ended(), "after {kill} kills: {:?}", sending.end());
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing more came after {kill} kills");
            std::thread::sleep(Duration::from_millis(1));
        }
        served.stop_by(Signal::KILL);
        let mut again = command(here);
        served = Served::spawn(again.args(["serve", "--listen", &address]));
    }
    let sent = sending.end();
    let done = first(&sent);
    assert_eq!((&done["size"], &done["sha256"]), (&json!(size), &json!(sha256)), "{sent:?}");
    let id = done["upload_id"].as_str().unwrap();
    let status = served.take_get(&format!("/v1/upload/documents/{id}"));
    assert_eq!(status["status"], json!("COMPLETED"), "{status}");
    let events = served.take_get("/v1/upload/documents/events?after=0");
    assert_eq!(events["events"].as_array().unwrap().len(), 1, "{events}");
    assert_eq!(served.stop().code, 0);
    let well = run(here, &["upload", "doctor"]);
    assert_eq!((well.code, well.out.as_str()), (0, "nothing is wrong\n"), "{well:?}");
}

#[test]
fn a_server_that_wants_a_token_is_given_one_and_one_that_is_away_is_told() {
    let config = "[server]\ntokens = [{ env = \"T\", role = \"write\" }]\n";
    let folder = folder(&[("small", "abc"), ("quaymaster.toml", config)]);
    let here = folder.path();
    let mut serve = command(here);
    serve.args(["serve", "--listen", &any_port(), "--store", "memory"]).env("T", "a token of some length!!");
    let served = Served::spawn(&mut serve);
    let server = format!("http://{}", served.address);
    let with = |token: &str| {
        let mut put = command(here);
        put.args(["upload", "put", "small", "--json", "--resource=documents", "--server", &server])
            .env("T", "a token of some length!!");
        said(put.env("QUAYMASTER_TOKEN", token))
    };
    assert_eq!(first(&with("a token of some length!!"))["size"], 3);
    let refused = with("another");
    assert!(refused.code == 2 && refused.err.contains("401"), "{refused:?}");
    assert_eq!(served.stop().code, 0);
}

#[test]
fn the_doctor_tells_an_uploads_history_and_what_does_not_fit() {
    let folder = folder(&[("small", "abc")]);
    let here = folder.path();
    let id = first(&put(here, &["small"]))["upload_id"].as_str().unwrap().to_owned();
    let well = run(here, &["upload", "doctor"]);
    assert_eq!((well.code, well.out.as_str()), (0, "nothing is wrong\n"), "{well:?}");
    assert!(well.err.contains("quaymaster-data (chosen by default"), "{well:?}");
    let told = run(here, &["upload", "doctor", &id]);
    assert!(told.code == 0 && told.out.starts_with(&format!("{id}  done  COMPLETED\n")), "{told:?}");
    assert!(told.out.lines().count() > 3, "{told:?}");
    let history = run(here, &["upload", "doctor", &id, "--json"]).json();
    assert!(history["uploads"][0]["history"].as_array().unwrap().len() > 2, "{history}");
    let nobody = run(here, &["upload", "doctor", &"0".repeat(32)]);
    assert!(nobody.code == 1 && nobody.err.contains("upload.unknown"), "{nobody:?}");
    std::fs::remove_dir_all(here.join("quaymaster-data/objects")).unwrap();
    let ill = run(here, &["upload", "doctor"]);
    assert!(ill.code == 1 && ill.out.contains("the object is there, and it is not"), "{ill:?}");
}

#[test]
fn the_doctor_lists_an_upload_that_stays_another_programs() {
    let schema = "[schema]\nname = \"test\"\nowner = \"tests\"\n\
                  [upload.documents]\nkey = \"upload:{upload_id}:state\"\n";
    let (folder, redis) = (folder(&[("schema.toml", schema)]), RedisServer::start(RedisConfig::default()));
    let url = redis.url();
    let doctor = ["upload", "doctor", "--schema", "schema.toml", "--store", &url];
    let fields = "node_id n s3_upload_id m s3_key k status RUNNING";
    let words: Vec<&str> = ["HSET", "upload:abc123:state"].into_iter().chain(fields.split(' ')).collect();
    redis.command::<()>(&words);
    let told = run(folder.path(), &doctor);
    assert_eq!(told.code, 1, "{told:?}");
    let wanted = "another program began it: its status is \"RUNNING\"";
    assert!(told.out.contains("abc123") && told.out.contains(wanted), "{told:?}");
    let repaired = run(folder.path(), &[&doctor[..], &["--repair"]].concat());
    assert!(repaired.code == 1 && repaired.out.contains(wanted), "{repaired:?}");
    assert_eq!(redis.command::<String>(&["HGET", "upload:abc123:state", "status"]), "RUNNING");
}

#[test]
fn a_worker_works_on_uploads_and_stops_when_told() {
    let folder = folder(&[]);
    let here = folder.path();
    let served = Served::start(here, &[]);
    let mut working = command(here);
    working.args(["worker", "--upload", "documents", "--metrics", &any_port()]);
    let worker =
        Served::spawn_saying(&mut working, "quaymaster working on upload.documents (store: embedded");
    let server = worker.line.split("http://").nth(1).unwrap().split('/').next().unwrap();
    file(here, "a.bin", 12 << 20);
    let serving = format!("http://{}", served.address);
    let done = first(&put(
        here,
        &["a.bin", "--resource=documents", "--server", &serving, "--chunk-bytes", "5242880"],
    ));
    assert_eq!(done["size"], 12 << 20);
    // Whoever of the two has sent a part says so.
    let sent = |address: &str| {
        let family = "quaymaster_s3_upload_latency_seconds_count{upload=\"documents\"} ";
        let metrics = ask(address, "GET", "/metrics", "").1;
        metrics.lines().find_map(|line| line.strip_prefix(family)?.parse::<u64>().ok()).unwrap()
    };
    let begun = Instant::now();
    while sent(server) + sent(&served.address) < 3 {
        assert!(begun.elapsed() < Duration::from_secs(60), "three parts were sent");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(ask(server, "GET", "/healthz", "").0, 200);
    assert_eq!(ask(server, "GET", "/readyz", "").0, 200);
    assert_eq!(ask(server, "POST", "/metrics", "").0, 405);
    for (method, path) in [("GET", "/"), ("GET", "/openapi.json"), ("POST", "/v1/upload/documents/create")] {
        let (status, told) = ask(server, method, path, "{}");
        assert!(status == 404 && told.contains("quaymaster serve"), "{method} {path}: {status} {told}");
    }
    // What the schema wants and nobody has set is said by whoever answers calls, once.
    let warnings = |said: &Said| said.err.matches("QUAYMASTER_SEAL_KEY").count();
    let stopped = worker.stop();
    assert_eq!((stopped.code, warnings(&stopped)), (0, 0), "{stopped:?}");
    let stopped = served.stop();
    assert_eq!((stopped.code, warnings(&stopped)), (0, 1), "{stopped:?}");
    let unknown = run(here, &["worker", "--upload", "other"]);
    assert_eq!(unknown.code, 2, "{unknown:?}");
    let open = run(here, &["worker", "--upload", "documents", "--metrics", "0.0.0.0:0"]);
    assert!(open.code == 2 && open.err.contains("no token"), "{open:?}");
}

#[test]
fn an_upload_is_created_called_off_and_gone_on_with_by_calls() {
    let folder = folder(&[]);
    let here = folder.path();
    let call = |words: &[&str]| run(here, &[&["upload"], words].concat());
    let metadata = "{\"a\": 1}";
    let made =
        call(&["create", "documents", "--name", "a", "--size", "3", "--custom-metadata", metadata, "--json"]);
    assert_eq!(made.code, 0, "{made:?}");
    let id = made.json()["upload_id"].as_str().unwrap().to_owned();
    let shown = call(&["status", "documents", "--upload-id", &id]);
    assert!(shown.code == 0 && shown.out.contains("PENDING"), "{shown:?}");
    assert_eq!(call(&["resume", "documents", "--upload-id", &id]).code, 0, "it has not stopped");
    let off = call(&["abort", "documents", "--upload-id", &id, "--json"]);
    assert_eq!((off.code, &off.json()["aborted"]), (0, &json!(true)), "{off:?}");
    let gone = call(&["resume", "documents", "--upload-id", &id]);
    assert!(gone.code == 1 && gone.err.contains("upload.closed"), "{gone:?}");
    let wrong = call(&["create", "documents", "--name", "a", "--connector-id", "../x"]);
    assert!(wrong.code == 2 && wrong.err.contains("--connector-id"), "{wrong:?}");
    assert_eq!(call(&["status", "documents", "--upload-id", &"0".repeat(32)]).code, 1);
}

#[test]
fn large_chunks_cost_the_server_little_memory() {
    let folder = folder(&[]);
    let here = folder.path();
    file(here, "a.bin", 192 << 20);
    let served = Served::start(here, &["--store", "memory"]);
    let before = served.peak_kib();
    let server = format!("http://{}", served.address);
    let words = [
        "a.bin",
        "--resource=documents",
        "--server",
        &server,
        "--parallel",
        "4",
        "--chunk-bytes",
        "50331648",
    ];
    assert_eq!(first(&put(here, &words))["size"], 192 << 20);
    let grown = served.peak_kib() - before;
    assert!(grown < 48 << 10, "four chunks of 48 MiB at once took {grown} KiB");
    assert_eq!(served.stop().code, 0);
}

#[test]
fn an_upload_straight_to_the_store_is_interrupted_and_gone_on_with() {
    let folder = folder(&[]);
    let here = folder.path();
    let bytes = file(here, "a.bin", 100 << 20);
    let words = ["a.bin", "--parallel", "1", "--chunk-bytes", "5242880"];
    let mut sending = command(here);
    let sending = Started::spawn(sending.args(["upload", "put", "--json"]).args(words));
    let begun = Instant::now();
    // Its first chunk is on its way.
    let spool = here.join("quaymaster-data/spool/documents");
    while std::fs::read_dir(&spool).map_or(0, Iterator::count) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
    let stopped = sending.stop_by(Signal::INT);
    assert_eq!(stopped.code, 130, "{stopped:?}");
    assert!(stopped.err.contains("the same command goes on"), "{stopped:?}");
    assert_eq!(first(&put(here, &words))["size"], json!(bytes.len()));
}

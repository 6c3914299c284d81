//! The programs in other languages that the pages show: run as they stand there.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use quaymaster::Quaymaster;
use quaymaster::queue::{Claim, Push};
use quaymaster::schema::{Source, load};
use quaymaster::store::{StoreOptions, open};
use quaymaster_server::{WorkerConfig, Workers};
use quaymaster_testkit::servers::{RedisConfig, RedisServer};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::service::{Act, Service};

/// The block of this language on a page; there is exactly one.
fn block(page: &str, language: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let blocks: Vec<&str> = text.split(&format!("```{language}\n")).skip(1).collect();
    let [block] = &blocks[..] else { panic!("{page} has {} blocks of {language}", blocks.len()) };
    block.split("```").next().unwrap().to_owned()
}

fn finished(mut command: Command) -> Output {
    let shown = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{shown}: {error}; run scripts/test-tools"));
    assert!(output.status.success(), "{shown}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn said(command: Command) -> String {
    String::from_utf8(finished(command).stdout).unwrap()
}

/// A module's text in a file of its own.
fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn foreign_producers_and_consumers_share_the_list_with_claims() {
    let redis = RedisServer::start(RedisConfig::default());
    let text = "[schema]\nname = \"t\"\n[queue.detection_queue]\nmax_size = 100\n";
    let schema = load(&[Source { name: "t.toml", text }], &|_| None).schema.unwrap();
    let store = open(StoreOptions::from_url(&redis.url(), Path::new("unused")).unwrap()).await.unwrap();
    let quaymaster = Quaymaster::new(Arc::new(schema), store);
    let queue = quaymaster.queue("detection_queue").unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let python = file(folder.path(), "foreign.py", &block("queues.md", "python"));
    let node = file(folder.path(), "foreign.mjs", &block("queues.md", "javascript"));
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-tools");
    let (url, url_again) = (redis.url(), redis.url());
    let run_python = || {
        let mut run = Command::new(tools.join("venv/bin/python"));
        run.arg(&python).arg(&url);
        run
    };
    let run_node = || {
        let mut run = Command::new("node");
        run.arg(&node).arg(&url_again).arg(tools.join("node"));
        run
    };
    // Alone on the list they get back what they pushed.
    assert_eq!(said(run_python()), "/py.jpg\n");
    assert_eq!(said(run_node()), "/js.jpg\n");
    // With a job of ours in front they pop that, and a claim gets theirs.
    for (run, theirs) in [(run_python(), "/py.jpg"), (run_node(), "/js.jpg")] {
        let _ = queue.push(Push::one(r#"{"file_path": "/ours.jpg"}"#)).await.unwrap();
        let popped = tokio::task::spawn_blocking(move || said(run)).await.unwrap();
        assert_eq!(popped, "/ours.jpg\n");
        let job = queue.claim(Claim::default()).await.unwrap().remove(0);
        let payload: Value = serde_json::from_slice(&job.payload).unwrap();
        assert_eq!(payload["file_path"], theirs);
    }
}

#[tokio::test]
async fn the_signature_is_checked_as_the_page_shows() {
    let service = Service::start(|_| Act::ok("")).await;
    let text = format!(
        "[schema]\nname = \"t\"\n[queue.jobs]\nmax_size = 10\n\
         push = {{ url = \"{}\", secret = {{ env = \"SECRET\" }} }}\n",
        service.url()
    );
    let secret = "a secret of some length";
    let env = |name: &str| (name == "SECRET").then(|| secret.to_owned());
    let schema = load(&[Source { name: "t.toml", text: &text }], &env).schema.unwrap();
    let store = open(StoreOptions::from_url("memory", Path::new("unused")).unwrap()).await.unwrap();
    let quaymaster = Quaymaster::new(Arc::new(schema), store);
    let workers = Workers::new(&quaymaster, &[], &WorkerConfig::default()).unwrap();
    let stop = CancellationToken::new();
    let _ = quaymaster.queue("jobs").unwrap().push(Push::one(r#"{"a": "ü"}"#)).await.unwrap();
    let stopping = async {
        while service.requests().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        stop.cancel();
    };
    let (ran, ()) = tokio::join!(workers.run(stop.clone()), stopping);
    ran.unwrap();
    let request = service.requests().remove(0);
    let given = json!({
        "secret": secret,
        "headers": request.headers,
        "body": String::from_utf8(request.body).unwrap(),
    });
    let folder = tempfile::TempDir::new().unwrap();
    let python = format!(
        "{}\nimport json, sys\ngiven = json.loads(sys.argv[1])\n\
         check = lambda **new: print(is_ours(*{{**given, **new, \"body\": new.get(\"body\", given[\"body\"]).encode()}}.values()))\n\
         check()\ncheck(body=given[\"body\"] + \" \")\ncheck(secret=\"another\")\n\
         check(headers={{**given[\"headers\"], \"quaymaster-timestamp\": \"1\"}})\n",
        block("workers.md", "python")
    );
    // `secret`, `headers` and `body` in the order of the function's arguments.
    let ordered = format!(
        "{{\"secret\": {}, \"headers\": {}, \"body\": {}}}",
        given["secret"], given["headers"], given["body"]
    );
    let python = file(folder.path(), "check.py", &python);
    let mut run = Command::new("python3");
    run.arg(python).arg(&ordered);
    assert_eq!(said(run), "True\nFalse\nFalse\nFalse\n");
    let node = format!(
        "{}\nconst given = JSON.parse(process.argv[2]);\n\
         const check = (changed) => {{\n\
           const {{ secret, headers, body }} = {{ ...given, ...changed }};\n\
           console.log(isOurs(secret, headers, Buffer.from(body)));\n\
         }};\n\
         check({{}}); check({{ body: given.body + \" \" }}); check({{ secret: \"another\" }});\n\
         check({{ headers: {{ ...given.headers, \"quaymaster-timestamp\": \"1\" }} }});\n",
        block("workers.md", "javascript")
    );
    let node = file(folder.path(), "check.mjs", &node);
    let mut run = Command::new("node");
    run.arg(node).arg(&ordered);
    assert_eq!(said(run), "true\nfalse\nfalse\nfalse\n");
}

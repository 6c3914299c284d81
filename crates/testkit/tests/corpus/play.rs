//! Plays steps against a server and notes what comes, or compares it with what was noted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use quaymaster_testkit::stage::{Ask, Stage, Wire};
use serde_json::Value;

use crate::mask::Mask;
use crate::step::{Act, Said, Step, parse};
use crate::subject;

/// `record` writes the files anew.
const MODE: &str = "QUAYMASTER_CORPUS";
/// How long something that happens beside the calls may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// A body that has come with its head is no larger.
const EARLY: usize = 8 * 1024;
/// Differences shown of one file.
const SHOWN: usize = 20;

fn file(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/records").join(format!("{kind}.txt"))
}

/// Whether the records are made anew.
pub(crate) fn is_recording() -> bool {
    std::env::var_os(MODE).is_some_and(|mode| mode == "record")
}

/// The recorded steps of `kind`, and what was answered, as written.
pub(crate) fn recorded(kind: &str) -> Vec<(Step, String)> {
    let text = std::fs::read_to_string(file(kind))
        .unwrap_or_else(|error| panic!("{}: {error}", file(kind).display()));
    parse(&text)
}

/// Plays the steps of `kind` and compares each answer with its record; or records them.
pub(crate) fn play(kind: &str, made: &[Step]) {
    if is_recording() {
        let mut player = Player::start();
        let blocks = made.iter().map(|step| format!("{}{}", step.written(), player.act(step).written()));
        let text = blocks.collect::<Vec<_>>().join("\n");
        std::fs::create_dir_all(file(kind).parent().unwrap()).unwrap();
        std::fs::write(file(kind), text).unwrap();
        return;
    }
    let recorded = recorded(kind);
    let mut player = Player::start();
    let mut differences = Vec::new();
    for (step, wanted) in &recorded {
        let got = player.act(step).written();
        if got != *wanted {
            differences.push(format!("{}recorded:\n{wanted}got:\n{got}", step.written()));
        }
    }
    let count = differences.len();
    differences.truncate(SHOWN);
    assert!(
        count == 0,
        "{count} of {} answers of {kind} are not as recorded, the first:\n\n{}\nWhere that is intended, record them anew \
         ({MODE}=record cargo nextest run -p quaymaster-testkit --test corpus) and let the diff be reviewed.",
        recorded.len(),
        differences.join("\n")
    );
    let same = made.iter().eq(recorded.iter().map(|(step, _)| step));
    assert!(same, "the generator makes other steps of {kind} than are recorded: record them ({MODE}=record)");
}

/// A stage, and what was answered on it so far.
struct Player {
    mask: Mask,
    /// Answers that have a label.
    kept: BTreeMap<String, Value>,
    open: BTreeMap<String, Wire>,
    wire: Option<Wire>,
    stage: Stage,
}

impl Player {
    fn start() -> Self {
        let stage = subject::start();
        let mut mask = Mask::default();
        mask.know(stage.url(), "store");
        mask.know(stage.url().trim_start_matches("redis://"), "store address");
        mask.know(stage.address().to_string(), "server");
        mask.know(stage.folder().display().to_string(), "folder");
        Self { mask, kept: BTreeMap::new(), open: BTreeMap::new(), wire: None, stage }
    }

    fn act(&mut self, step: &Step) -> Said {
        match &step.act {
            Act::Ask(ask) => {
                let ask = self.filled(ask);
                self.ask(&ask, step.label.as_deref())
            }
            Act::Until(ask, text) => {
                let ask = self.filled(ask);
                let begun = Instant::now();
                loop {
                    let said = self.ask(&ask, step.label.as_deref());
                    if String::from_utf8_lossy(&said.body).contains(text.as_str())
                        || begun.elapsed() > PATIENCE
                    {
                        return said;
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            Act::Open(ask) => {
                let ask = self.filled(ask);
                let mut wire = Wire::open(self.stage.address());
                let answer = wire.open_answer(&ask);
                self.open.insert(step.label.clone().unwrap_or_default(), wire);
                Said { status: answer.kind(), headers: answer.told(), ..Said::default() }
            }
            Act::Hear(label, text) => {
                let wire = self.open.get_mut(label).unwrap_or_else(|| panic!("{label} is not open"));
                let heard = wire.hear(text);
                self.mask.learn_stream(&heard);
                Said { body: self.mask.applied(&heard), ..Said::default() }
            }
            Act::Pass(ms) => {
                self.stage.pass(*ms);
                Said::default()
            }
            Act::Run(words) => self.run(words, step.label.as_deref()),
        }
    }

    fn ask(&mut self, ask: &Ask, label: Option<&str>) -> Said {
        let wire = self.wire.get_or_insert_with(|| Wire::open(self.stage.address()));
        let (answer, goes_on) = wire.ask(ask);
        // The connection of a body that is refused before it has come may end at any time after the answer.
        let refused = answer.status >= 400 && ask.body.as_ref().is_some_and(|body| body.len() > EARLY);
        if !goes_on || refused {
            self.wire = None;
        }
        self.keep(&answer.body, label);
        let headers = answer.told().iter().map(|header| self.text(header.as_bytes())).collect();
        Said { status: answer.kind(), headers, body: self.mask.applied(&answer.body), ..Said::default() }
    }

    fn run(&mut self, words: &[String], label: Option<&str>) -> Said {
        let mut command = self.stage.command();
        for word in words {
            command.arg(self.fill(word));
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        self.keep(&output.stdout, label);
        self.mask.learn_table(&output.stdout);
        Said {
            status: output.status.code().map_or_else(|| "a signal".to_owned(), |code| format!("exit {code}")),
            headers: Vec::new(),
            body: self.mask.applied(&output.stdout),
            beside: self.mask.applied(&output.stderr),
        }
    }

    fn keep(&mut self, body: &[u8], label: Option<&str>) {
        let Ok(value) = serde_json::from_slice(body) else { return };
        self.mask.learn(&value);
        if let Some(label) = label {
            self.kept.insert(label.to_owned(), value);
        }
    }

    fn text(&self, bytes: &[u8]) -> String {
        String::from_utf8_lossy(&self.mask.applied(bytes)).into_owned()
    }

    fn filled(&self, ask: &Ask) -> Ask {
        let body = ask.body.as_ref().map(|body| match std::str::from_utf8(body) {
            Ok(text) => self.fill(text).into_bytes(),
            Err(_) => body.clone(),
        });
        Ask { path: self.fill(&ask.path), body, ..ask.clone() }
    }

    /// `${label.jobs.0.lease}` becomes what that answer had there.
    fn fill(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) = after.split_once('}').unwrap_or_else(|| panic!("no end: {text}"));
            out.push_str(before);
            out.push_str(&self.value(name));
            rest = after;
        }
        out + rest
    }

    fn value(&self, name: &str) -> String {
        match name {
            "store" => return self.stage.url(),
            "server" => return format!("http://{}", self.stage.address()),
            _ => {}
        }
        let (label, path) = name.split_once('.').unwrap_or((name, ""));
        let found =
            self.kept.get(label).and_then(|answer| answer.pointer(&format!("/{}", path.replace('.', "/"))));
        match found {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            // The answer is not what it was; what follows is sent all the same, to show what else differs.
            None => format!("no-{label}"),
        }
    }
}

//! Makes the corpus' requests: from a table of all verbs everything that can be wrong with each of their fields, and
//! scenes by hand for what they do. The same requests every time.

mod commands;
mod faults;
mod pages;
mod queues;
mod runs;
mod scenes;
mod uploads;

use quaymaster_testkit::stage::Ask;
pub(crate) use quaymaster_testkit::verbs::{VERBS, Verb};

use crate::step::{Act, Step};

quaymaster_testkit::kinds!(files pages openapi commands);

/// All steps of a file.
pub(crate) fn steps(kind: &'static str) -> Vec<Step> {
    let mut maker = Maker { kind, steps: Vec::new(), fresh: 0 };
    match kind {
        "limit" => scenes::limit(&mut maker),
        "lock" => scenes::lock(&mut maker),
        "idempotency" => scenes::idempotency(&mut maker),
        "cache" => scenes::cache(&mut maker),
        "dedupe" => scenes::dedupe(&mut maker),
        "guard" => scenes::guard(&mut maker),
        "queue" => queues::queue(&mut maker),
        "batch" => queues::batch(&mut maker),
        "event" => scenes::event(&mut maker),
        "run" => runs::run(&mut maker),
        "stats" => runs::stats(&mut maker),
        "upload" => uploads::upload(&mut maker),
        "openapi" => maker.ask("the document", bare("GET", "/openapi.json")),
        "commands" => commands::commands(&mut maker),
        "pages" => pages::pages(&mut maker),
        // What is wrong with its requests is all that is tried of a kind without a scene.
        _ => {}
    }
    for verb in VERBS.iter().filter(|verb| verb.kind == kind) {
        faults::of(&mut maker, verb);
    }
    maker.steps
}

/// Collects steps.
pub(crate) struct Maker {
    kind: &'static str,
    steps: Vec<Step>,
    fresh: u32,
}

impl Maker {
    fn add(&mut self, title: String, label: &str, act: Act) {
        let label = Some(label).filter(|label| !label.is_empty()).map(str::to_owned);
        self.steps.push(Step { title, label, act });
    }

    /// `$N` in a text is a number that was not used before.
    fn numbered(&mut self, text: &str) -> String {
        if !text.contains("$N") {
            return text.to_owned();
        }
        self.fresh += 1;
        text.replace("$N", &format!("n{}", self.fresh))
    }

    /// `verb name` of this kind with a JSON body; the answer is called `label` unless that is empty.
    fn post_as(&mut self, label: &str, call: &str, body: &str) {
        let (verb, name) = call.split_once(' ').unwrap_or_else(|| panic!("a verb and a name: {call}"));
        let body = self.numbered(body);
        let title = format!("{}.{verb} {name}", self.kind);
        self.add(title, label, Act::Ask(json(&format!("/v1/{}/{name}/{verb}", self.kind), &body)));
    }

    fn post(&mut self, call: &str, body: &str) {
        self.post_as("", call, body);
    }

    /// The same body for several calls.
    fn posts(&mut self, times: usize, call: &str, body: &str) {
        for _ in 0..times {
            self.post(call, body);
        }
    }

    /// `verb name` of another kind.
    fn other(&mut self, kind: &str, call: &str, body: &str) {
        let (verb, name) = call.split_once(' ').unwrap_or_else(|| panic!("a verb and a name: {call}"));
        let title = format!("{kind}.{verb} {name}");
        self.add(title, "", Act::Ask(json(&format!("/v1/{kind}/{name}/{verb}"), body)));
    }

    /// `verb name` that only reads.
    fn get(&mut self, call: &str, query: &str) {
        let (verb, name) = call.split_once(' ').unwrap_or_else(|| panic!("a verb and a name: {call}"));
        let title = format!("{}.{verb} {name}", self.kind);
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        self.add(title, "", Act::Ask(bare("GET", &format!("/v1/{}/{name}/{verb}{query}", self.kind))));
    }

    /// Any request.
    fn ask(&mut self, title: &str, ask: Ask) {
        self.add(format!("{}: {title}", self.kind), "", Act::Ask(ask));
    }

    fn pass(&mut self, ms: u64) {
        self.add(format!("{ms} ms pass"), "", Act::Pass(ms));
    }
}

/// A request without a body.
fn bare(method: &str, path: &str) -> Ask {
    Ask::new(method, path)
}

/// A request with a JSON body.
fn json(path: &str, body: &str) -> Ask {
    bare("POST", path).json(body)
}

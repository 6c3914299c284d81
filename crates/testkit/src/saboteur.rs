//! A store whose scripts were changed: a suite must be seen to find the defect it looks for.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use quaymaster_store::{Engine, Invocation, Reply, Result, Script};

use crate::conformance::{Case, Subject};
use crate::passing::passes_on;

/// Script, what is replaced, by what, and the case that must notice.
pub type Defect = (&'static str, &'static str, &'static str, &'static str);

/// Whether the defect's case, one of `cases`, fails on `engine` with it. The defect must be there at all.
///
/// # Panics
/// When no case has the name, or no script says any more what the defect replaces.
pub async fn is_found(
    engine: Arc<dyn Engine>,
    keep: Arc<dyn Any + Send + Sync>,
    (script, old, new, name): Defect,
    cases: &[&'static [Case]],
) -> bool {
    let mut all = cases.iter().copied().flatten();
    let case = all.find(|case| case.name == name).unwrap_or_else(|| panic!("no case {name}"));
    let saboteur = Arc::new(Saboteur::new(engine, script, old, new));
    let prefix = format!("{name}{}:", fastrand::u32(..));
    let subject = Subject { name: "sabotaged", engine: saboteur.clone(), clock: None, prefix, keep };
    let failed = tokio::spawn(async move { (case.run)(&subject).await }).await.is_err();
    assert!(saboteur.changed() > 0, "{script} does not say {old:?} any more");
    failed
}

/// Passes everything on; in the scripts of one operation some text stands in place of another.
#[derive(Debug)]
pub struct Saboteur {
    inner: Arc<dyn Engine>,
    /// Operation, what is replaced, and by what.
    defect: (String, String, String),
    changed: Mutex<HashMap<&'static str, &'static Script>>,
}

impl Saboteur {
    /// In scripts whose id begins with `operation`, `new` stands in place of `old`.
    pub fn new(inner: Arc<dyn Engine>, operation: &str, old: &str, new: &str) -> Self {
        let defect = (operation.to_owned(), old.to_owned(), new.to_owned());
        Self { inner, defect, changed: Mutex::default() }
    }

    fn script(&self, script: &'static Script) -> &'static Script {
        let (operation, old, new) = &self.defect;
        if !script.id.starts_with(operation) || !script.source.contains(old) {
            return script;
        }
        self.changed.lock().entry(script.id).or_insert_with(|| {
            let source: &'static str = script.source.replace(old, new).leak();
            let sha: &'static str = sha1_smol::Sha1::from(source).digest().to_string().leak();
            // A handful in a process that ends with its test.
            Box::leak(Box::new(Script { id: script.id, source, sha, effect: script.effect }))
        })
    }

    /// How many scripts were changed: none means that the defect's text is not there any more.
    pub fn changed(&self) -> usize {
        self.changed.lock().len()
    }
}

impl Engine for Saboteur {
    fn run(&self, mut call: Invocation) -> BoxFuture<'_, Result<Reply>> {
        call.script = self.script(call.script);
        self.inner.run(call)
    }
    passes_on!(now_us key_facts rest);
}

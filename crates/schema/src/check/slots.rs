//! Resources that one step joins must share a slot on a cluster; a guard may be entered in several steps.

use std::collections::HashMap;

use crate::diagnostic::{Diagnostic, Severity};
use crate::field::Spec;
use crate::kind::Kind;
use crate::read::draft::Draft;
use crate::read::report::{MOST, Report};
use crate::spec::{PushSpec, QueueSpec};

/// Warns, and returns the same problems as errors for whoever starts on a cluster.
pub(crate) fn slots(drafts: &[Draft], report: &Report<'_>) -> Vec<Diagnostic> {
    let known: HashMap<(Kind, &str), &Draft> =
        drafts.iter().map(|draft| ((draft.kind, draft.name.as_str()), draft)).collect();
    let find = |kind: Kind, name: &str| known.get(&(kind, name)).copied();
    let mut problems = Vec::new();
    for draft in drafts {
        let joined: Vec<&Draft> = match &draft.spec {
            Spec::Guard(guard) => {
                let limits = guard.limits.iter().filter_map(|name| find(Kind::Limit, name));
                let idempotency = guard.idempotency.iter().filter_map(|name| find(Kind::Idempotency, name));
                let lock = guard.lock.iter().filter_map(|name| find(Kind::Lock, name));
                limits.chain(idempotency).chain(lock).collect()
            }
            Spec::Batch(batch) => std::iter::once(draft).chain(find(Kind::Queue, &batch.to)).collect(),
            // The ack of a pushed job and what its answer adds elsewhere.
            Spec::Queue(QueueSpec { push: Some(PushSpec { result_to: Some((kind, name)), .. }), .. })
                if *kind != Kind::Event =>
            {
                std::iter::once(draft).chain(find(*kind, name)).collect()
            }
            _ => continue,
        };
        if joined.windows(2).all(|pair| pair[0].tag == pair[1].tag) {
            continue;
        }
        let parts: Vec<String> =
            joined.iter().map(|part| format!("[{}] under `{{{}}}`", part.label(), part.tag.text())).collect();
        if matches!(draft.spec, Spec::Guard(_)) {
            let mut tags: Vec<String> = joined.iter().map(|part| part.tag.text()).collect();
            tags.sort_unstable();
            tags.dedup();
            let (label, parts) = (draft.label(), parts.join(", "));
            let message = format!("[{label}] is entered in {} steps on a cluster: {parts}", tags.len());
            let help = "give all of them the same `colocate`, a constant or placeholders all their keys have; a process \
                        that dies between two steps leaves what it took until that expires";
            report.add(draft.at, "guard-steps", message, Some(help.to_owned()));
            continue;
        }
        let message = format!("[{}] joins in one step, on a cluster, {}", draft.label(), parts.join(", "));
        let help = "give all of them the same `colocate`, a constant or placeholders all their keys have";
        report.add(draft.at, "cluster-slots", message.clone(), Some(help.to_owned()));
        // One problem is enough to refuse a cluster; the warnings count the rest.
        if problems.len() < MOST {
            let problem = report.diagnostic(draft.at, "cluster-slots", message, Some(help.to_owned()));
            problems.push(Diagnostic { severity: Severity::Error, ..problem });
        }
    }
    problems
}

//! A writer of hostile side keys: it knows every key of every kind, and what no program should leave there.
//!
//! A [`Scene`] brings a resource to life, lets the writer spoil one key, and goes on with every verb that meets it. The
//! writer takes the keys, their types and their fields from the schema's own table, and tries every [`Poison`] on each.
//! Whatever was spoiled, these hold:
//!
//! - no answer is a 5xx;
//! - `key.malformed` and `key.wrong_type` name the key, and such a call has changed nothing;
//! - no call has changed anything whose error does not say that it may have run;
//! - no id stands for two jobs, and a fence only rises;
//! - an item that the store has is there until it is done.

mod poison;
mod recorder;
mod stage;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use quaymaster::schema::{Source, load};
use quaymaster::{Engine, operations};
use quaymaster_schema::{Kind, Schema};

pub use poison::Poison;
pub use stage::Stage;

pub mod scenes;

/// How a kind is played, and which of its keys are spoiled meanwhile.
#[derive(Clone, Copy)]
pub struct Scene {
    /// What it is called in messages.
    pub name: &'static str,
    /// The resources it needs, without the `[schema]` table.
    pub schema: &'static str,
    /// Values of every placeholder in a key that is spoiled.
    pub values: &'static [(&'static str, &'static str)],
    /// The keys that are spoiled.
    pub rows: &'static [Row],
    /// Makes the resources live, calls [`Stage::spoil`] once, and goes on with every verb.
    pub play: for<'a> fn(&'a Stage) -> BoxFuture<'a, ()>,
}

/// One key of the table: kind, name of the resource in the scene's schema, role.
pub type Row = (Kind, &'static str, &'static str);

fn schema_of(scene: &Scene) -> Arc<Schema> {
    let text = format!("[schema]\nname = \"hostile\"\nowner = \"tests\"\n{}", scene.schema);
    let loaded = load(&[Source { name: "hostile.toml", text: &text }], &|_| None);
    Arc::new(loaded.schema.unwrap_or_else(|| panic!("{}: {:#?}", scene.name, loaded.diagnostics)))
}

/// Plays the scene once unspoiled and once for every poison of every row; answers what did not hold, a line each.
pub async fn play(engine: Arc<dyn Engine>, scene: &Scene) -> Vec<String> {
    let schema = schema_of(scene);
    let stage = |poison| Stage::new(scene, schema.clone(), engine.clone(), poison);
    let mut broken = Vec::new();
    let unspoiled = stage(None);
    (scene.play)(&unspoiled).await;
    let held = unspoiled.at_the_spoiling();
    broken.extend(unspoiled.end().await);
    for (kind, name, role) in scene.rows {
        let resource = schema.resource(*kind, name).unwrap_or_else(|| panic!("no {kind} {name}"));
        let row = resource.key(role).unwrap_or_else(|| panic!("{kind} {name} has no {role}"));
        let key = stage::spell(row, scene.values, engine.now_us());
        for poison in Poison::all(row, held.get(&key)) {
            let spoiled = stage(Some((key.clone(), poison)));
            (scene.play)(&spoiled).await;
            broken.extend(spoiled.end().await);
        }
    }
    broken
}

/// Scripts that no scene runs after its spoiling. `elsewhere` begins the names of those that have their own tests.
pub async fn unmet(engine: Arc<dyn Engine>, scenes: &[Scene], elsewhere: &[&str]) -> Vec<&'static str> {
    let mut met = BTreeSet::new();
    for scene in scenes {
        let stage = Stage::new(scene, schema_of(scene), engine.clone(), None);
        (scene.play)(&stage).await;
        met.extend(stage.met());
        stage.end().await;
    }
    let all = operations().iter().map(|operation| operation.script.id);
    all.filter(|id| !met.contains(id) && !elsewhere.iter().any(|begin| id.starts_with(begin))).collect()
}

/// Keys of the table that no scene spoils, a line each. `elsewhere` names kinds and roles that have their own tests.
pub fn uncovered(scenes: &[Scene], elsewhere: &[(Kind, &str)]) -> Vec<String> {
    let mut covered = BTreeSet::new();
    let mut wanted = BTreeSet::new();
    for scene in scenes {
        covered.extend(scene.rows.iter().map(|(kind, _, role)| (*kind, *role)));
        for resource in schema_of(scene).resources() {
            wanted.extend(resource.keys.iter().map(|row| (resource.kind, row.role)));
        }
    }
    let without = |kind: &Kind| !wanted.iter().any(|(wanted, _)| wanted == kind);
    // A guard's keys are those of its parts; a foreign key is nobody's of ours.
    let kinds = Kind::ALL.iter().filter(|kind| !matches!(kind, Kind::Guard | Kind::Key));
    let missing = kinds.filter(|kind| without(kind)).map(|kind| (*kind, "every key"));
    let rows = wanted.iter().filter(|row| !covered.contains(*row)).copied();
    missing
        .chain(rows)
        .filter(|row| !elsewhere.contains(row))
        .map(|(kind, role)| format!("{kind}: {role}"))
        .collect()
}

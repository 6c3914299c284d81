//! Which resources a request names, by the declarations of its fields.

use quaymaster::schema::{Kind, Schema};

use super::field::{Holds, Names};
use super::read;
use super::slots::{Slot, Slots};
use crate::http::problem::Problem;
use crate::http::rights::Rights;

/// Refuses a request that names a resource out of reach, in itself or in one of its parts.
///
/// A part that cannot be read is passed over: with it the request is refused before anything is done.
pub(crate) fn check(slots: &Slots<'_>, rights: Rights<'_>, schema: &Schema) -> Result<(), Problem> {
    let mut called: Option<Kind> = None;
    for (field, value) in slots.given() {
        match (field.spec.names, field.spec.holds, value) {
            (Names::Resource(kind), _, Slot::Text(name)) => rights.need_declared(schema, kind, name)?,
            (Names::Call, _, Slot::Text(call)) => {
                called = call.split_once('.').and_then(|(kind, _)| kind.parse().ok());
            }
            (Names::Called, _, Slot::Text(name)) => match called {
                Some(kind) => rights.need_declared(schema, kind, name)?,
                None => rights.need_all("what the request names")?,
            },
            (_, Holds::Object(shape), Slot::Raw(part)) => {
                if let Ok(part) = read::object(shape, part.get(), "") {
                    check(&part, rights, schema)?;
                }
            }
            (_, Holds::Objects(shape, _), Slot::Raws(parts)) => {
                for part in parts.iter().filter_map(|part| read::object(shape, part.get(), "").ok()) {
                    check(&part, rights, schema)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

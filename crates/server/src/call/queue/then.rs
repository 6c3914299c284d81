//! What follows from an ack: the fields of other calls, with the call's own id in `call`.

use std::borrow::Cow;
use std::time::Duration;

use quaymaster::queue::Then;
use serde_json::value::RawValue;

use super::push::{DELAY_MS, PRIORITY};
use super::{owned, owned_pairs, verbatim};
use crate::request::{Holds, JSON, KeyValues, Names, Spec, request};

request! {
    /// One call made in the ack's own step.
    pub(crate) struct QueueThen<'a> {
        /// Which call.
        call: Cow<'a, str> = Spec::of(Holds::Word(&["batch.add", "event.publish", "queue.push"]))
            .required("")
            .names(Names::Call)
            .example(r#""event.publish""#),
        /// The batch, event or queue, by its name in the schema.
        name: Cow<'a, str> =
            Spec::text().required("").names(Names::Called).example(r#""security_events""#),
        /// The placeholders of the batch's key, by name.
        key: Option<KeyValues<'a>> = Spec::of(Holds::Key),
        /// The item: any JSON, kept as it was written.
        item: Option<&'a RawValue> = JSON,
        /// An id already in the batch is not added again.
        id: Option<Cow<'a, str>> = Spec::text_of(1, 512),
        /// The message: any JSON, published as it was written.
        data: Option<&'a RawValue> = JSON,
        /// The job: any JSON, kept as it was written.
        payload: Option<&'a RawValue> = JSON,
        priority: Option<f64> = PRIORITY,
        /// How long it stays away from claims.
        delay_ms: Option<u64> = DELAY_MS.default("0"),
    }
    forms {
        QueueThenAdd "batch.add" needs ["item"] takes ["key", "id"];
        QueueThenPublish "event.publish" needs ["data"] takes [];
        QueueThenPush "queue.push" needs ["payload"] takes ["priority", "delay_ms"];
    }
}

/// Every form's own fields are there: who lacks one was refused when the request was read.
impl From<QueueThen<'_>> for Then {
    fn from(then: QueueThen<'_>) -> Self {
        let json = |value: Option<&RawValue>| value.map(verbatim).unwrap_or_default();
        let name = then.name.into_owned();
        match &*then.call {
            "batch.add" => Self::BatchAdd {
                name,
                key: owned_pairs(then.key.unwrap_or_default()),
                item: json(then.item),
                id: owned(then.id),
            },
            "event.publish" => Self::Publish { name, data: json(then.data) },
            _ => Self::Push {
                name,
                payload: json(then.payload),
                priority: then.priority,
                delay: then.delay_ms.map(Duration::from_millis),
            },
        }
    }
}

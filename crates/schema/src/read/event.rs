//! Reading an event.

use super::common::{Body, Reading, reserved_placeholder};
use super::draft::ChannelDraft;
use crate::field::Spec;
use crate::field::event::{CHANNEL, DOCUMENTED, STATUS, status as status_fields};
use crate::keys::{PUBLISH_ID, event_rows};
use crate::kind::Kind;
use crate::spec::{EventSpec, StatusSpec};

pub(crate) fn read(reading: &mut Reading<'_, '_>) -> Option<Body> {
    let name = reading.name.clone();
    let channel = reading.key_or(&CHANNEL, &name);
    let status = status(reading);
    let fields = reading.documented_fields(&DOCUMENTED);
    let (channel, key_at) = channel?;
    if channel.bucket().is_some() {
        reading.add(key_at, "bad-pattern", "a channel has no time bucket", None);
        return None;
    }
    if channel.names().any(|name| name == PUBLISH_ID) {
        reserved_placeholder(&reading.fields, key_at, PUBLISH_ID);
        return None;
    }
    if status.is_some() && channel.names().next().is_some() {
        let message = "a status goes to one channel; with placeholders nobody knows which";
        reading.add(
            key_at,
            "contradiction",
            message,
            Some("take the placeholders out of `channel`, or drop `status`"),
        );
        return None;
    }
    let spec = EventSpec { channel: channel.text(), status };
    let rows = event_rows(&channel, &spec);
    let mut body = Body::new(Spec::Event(spec), rows, key_at);
    body.wide = channel.names().last().map(str::to_owned);
    body.tag = channel.clone();
    body.channels.push(ChannelDraft {
        role: "messages",
        template: channel,
        purpose: "Messages to whoever listens".to_owned(),
        fields,
    });
    Some(body)
}

fn status(reading: &mut Reading<'_, '_>) -> Option<StatusSpec> {
    let fields = reading.fields.table(&STATUS)?;
    let every = fields.or_default(&status_fields::EVERY);
    let queues = fields.or_default(&status_fields::QUEUES);
    for (index, (name, at)) in queues.iter().enumerate() {
        if queues[..index].iter().any(|(before, _)| before == name) {
            let message = format!("the queue {} is named twice", crate::diagnostic::excerpt(name));
            reading.add(*at, "contradiction", message, None);
        }
        reading.refer(Kind::Queue, name, *at);
    }
    Some(StatusSpec { every, queues: queues.into_iter().map(|(name, _)| name).collect() })
}

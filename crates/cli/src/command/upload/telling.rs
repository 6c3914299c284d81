//! Progress as a server tells it: server-sent events.

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use quaymaster::upload::Progress;

use super::remote::unusual;
use super::way::Tried;
use crate::sse::{Events, TooLong};

/// No event is longer: an error of an upload is a few KiB.
const EVENT_MAX: usize = 1 << 20;

/// The progress in an answer that comes by pieces.
pub(super) fn progress(pieces: BoxStream<'static, Tried<Bytes>>) -> BoxStream<'static, Tried<Progress>> {
    stream::unfold((pieces, Events::new(EVENT_MAX)), |(mut pieces, mut events)| async move {
        let told = next(&mut pieces, &mut events).await?;
        Some((told, (pieces, events)))
    })
    .boxed()
}

/// The next one; `None` at the answer's end.
async fn next(pieces: &mut BoxStream<'static, Tried<Bytes>>, events: &mut Events) -> Option<Tried<Progress>> {
    loop {
        match events.next() {
            Ok(Some(event)) => {
                return Some(serde_json::from_slice(&event.data).map_err(|_| unusual(&event.data)));
            }
            Ok(None) => {}
            Err(TooLong(beginning)) => return Some(Err(unusual(&beginning))),
        }
        match pieces.next().await? {
            Ok(piece) => events.push(&piece),
            Err(broke) => return Some(Err(broke)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::way::Trying;
    use super::*;

    fn event(seq: u64) -> String {
        format!(
            "event: progress\nid: {seq}\ndata: {{\"uploaded_chunks\":1,\"total_chunks\":2,\"bytes_uploaded\":3,\
             \"total_bytes\":4,\"percent\":5.0,\"status\":\"UPLOADING\",\"seq\":{seq}}}\n\n"
        )
    }

    #[tokio::test]
    async fn events_are_read_however_the_line_cuts_them() {
        let text = format!(": listening\n\n{}: heartbeat\n\n{}", event(7), event(8));
        for size in [1, 10, text.len()] {
            let pieces = text.as_bytes().chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece)));
            let pieces: Vec<Tried<Bytes>> = pieces.collect();
            let told: Vec<_> = progress(stream::iter(pieces).boxed()).collect().await;
            let seqs: Vec<u64> = told.into_iter().map(|told| told.unwrap().seq).collect();
            assert_eq!(seqs, [7, 8], "by {size} bytes");
        }
        let pieces: [Tried<Bytes>; 1] = [Ok(Bytes::from_static(b"data: <html>\n\n"))];
        let strange = progress(stream::iter(pieces).boxed()).next().await.unwrap();
        assert!(
            matches!(&strange, Err(Trying::Never(error)) if error.detail.contains("<html>")),
            "{strange:?}"
        );
    }
}

//! Server-sent events, read as they come.

/// One event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its name, where it has one.
    pub(crate) name: Option<String>,
    /// Whether it has an id.
    pub(crate) has_id: bool,
    /// Its comments; earlier servers put one before what nobody published.
    pub(crate) comment: Option<String>,
    /// Its data, the lines divided by `\n`.
    pub(crate) data: Vec<u8>,
    /// Whether it has data, perhaps an empty line of it.
    has_data: bool,
}

/// An event that has more bytes than it may have; the beginning of it.
#[derive(Debug)]
pub(crate) struct TooLong(pub(crate) Vec<u8>);

/// The events of an answer that comes by pieces.
#[derive(Debug)]
pub(crate) struct Events {
    came: Vec<u8>,
    /// No line ends before this place.
    searched: usize,
    event: Event,
    /// The most bytes of one event.
    most: usize,
}

impl Events {
    pub(crate) fn new(most: usize) -> Self {
        Self { came: Vec::new(), searched: 0, event: Event::default(), most }
    }

    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.came.extend_from_slice(piece);
    }

    /// The next event that has data; none until more has come.
    pub(crate) fn next(&mut self) -> Result<Option<Event>, TooLong> {
        let mut from = 0;
        let mut found = None;
        while found.is_none() {
            let start = from.max(self.searched);
            let Some(end) = self.came[start..].iter().position(|byte| *byte == b'\n') else {
                self.searched = self.came.len();
                break;
            };
            let line = &self.came[from..start + end];
            if line.is_empty() || line == b"\r" {
                found = Some(std::mem::take(&mut self.event)).filter(|event| event.has_data);
            } else {
                self.event.take(line.strip_suffix(b"\r").unwrap_or(line));
            }
            from = start + end + 1;
            self.searched = from;
        }
        self.came.drain(..from);
        self.searched -= from;
        if found.is_none() && self.came.len().max(self.event.data.len()) > self.most {
            let longer = if self.came.len() > self.most { &self.came } else { &self.event.data };
            return Err(TooLong(longer[..self.most].to_vec()));
        }
        Ok(found)
    }
}

impl Event {
    fn take(&mut self, line: &[u8]) {
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(at) => (&line[..at], line[at + 1..].strip_prefix(b" ").unwrap_or(&line[at + 1..])),
            None => (line, &b""[..]),
        };
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => self.name = Some(String::from_utf8_lossy(value).into_owned()),
            b"id" => self.has_id = true,
            b"" => self.comment = Some(String::from_utf8_lossy(value).into_owned()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn events_are_read_however_the_line_cuts_them() {
        let text = ": listening\n\nid: o.1\ndata: {\ndata:  \"a\":1\r\ndata:}\n\n: heartbeat\n\nevent: binary\r\ndata: /w==\r\n\r\ndata:\n\n";
        for size in [1, 3, text.len()] {
            let (mut events, mut found) = (Events::new(100), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                events.push(piece);
                while let Some(event) = events.next().unwrap() {
                    found.push((event.name, event.has_id, String::from_utf8(event.data).unwrap()));
                }
            }
            let wanted = [
                (None, true, "{\n \"a\":1\n}".to_owned()),
                (Some("binary".to_owned()), false, "/w==".to_owned()),
                (None, false, String::new()),
            ];
            assert_eq!(found, wanted, "by {size} bytes");
        }
    }

    #[test]
    fn an_event_without_an_end_is_not_kept() {
        for line in [&b"data: aaaa"[..], b"data: aaaa\n"] {
            let mut events = Events::new(20);
            let ended = (0..20).find_map(|_| {
                events.push(line);
                events.next().err()
            });
            assert_eq!(ended.unwrap().0.len(), 20);
        }
    }
}

//! What a command answers, flat and in buffers that are used again: pushing it to Lua allocates nothing here.

/// One part of an answer, in preorder: an array is followed by its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Nil,
    Int(i64),
    Status(&'static str),
    /// A range of [`Out::bytes`].
    Bulk(usize, usize),
    Array(usize),
}

/// The answer of one command.
#[derive(Debug, Default)]
pub(crate) struct Out {
    parts: Vec<Part>,
    bytes: Vec<u8>,
}

/// Buffers longer than this are given back after use.
const KEEP: usize = 1 << 20;

impl Out {
    pub(crate) fn clear(&mut self) {
        self.parts.clear();
        self.bytes.clear();
        self.parts.shrink_to(KEEP / size_of::<Part>());
        self.bytes.shrink_to(KEEP);
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn nil(&mut self) {
        self.parts.push(Part::Nil);
    }

    pub(crate) fn int(&mut self, value: i64) {
        self.parts.push(Part::Int(value));
    }

    pub(crate) fn count(&mut self, value: usize) {
        self.int(value as i64);
    }

    pub(crate) fn ok(&mut self) {
        self.status("OK");
    }

    pub(crate) fn status(&mut self, word: &'static str) {
        self.parts.push(Part::Status(word));
    }

    pub(crate) fn bulk(&mut self, text: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(text);
        self.parts.push(Part::Bulk(start, self.bytes.len()));
    }

    pub(crate) fn maybe(&mut self, text: Option<&[u8]>) {
        match text {
            Some(text) => self.bulk(text),
            None => self.nil(),
        }
    }

    /// The next `len` parts belong to an array.
    pub(crate) fn array(&mut self, len: usize) {
        self.parts.push(Part::Array(len));
    }
}

//! The vocabulary of a worker's lines.

/// Declares `Event`, how it is printed and how it is read: a word and its fields, apart by spaces.
#[macro_export]
macro_rules! events {
    ($($variant:ident $word:literal { $($field:ident: $type:ty),+ })*) => {
        /// What a worker tells.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the worker documents its lines")]
        pub enum Event {
            $($variant { $($field: $type),+ },)*
        }

        impl std::fmt::Display for Event {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Event::$variant { $($field),+ } => {
                        f.write_str($word)?;
                        $(write!(f, " {}", $field)?;)+
                        Ok(())
                    })*
                }
            }
        }

        fn parse(words: &mut std::str::SplitWhitespace<'_>) -> Option<Event> {
            match words.next()? {
                $($word => Some(Event::$variant { $($field: words.next()?.parse().ok()?),+ }),)*
                _ => None,
            }
        }
    };
}

//! Answers to stdout, everything else to stderr.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

/// Prints an answer; a reader that went away (`| head`) is no failure.
pub(crate) fn print(text: &str) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Tells what went wrong.
pub(crate) fn error(text: &str) {
    let _ = writeln!(std::io::stderr(), "quaymaster: {}", printable_lines(text));
}

/// Tells something besides the answer, in a line.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(text));
}

/// What the store holds may be made to confuse a terminal: control characters, and characters that turn around what
/// is read, are shown and not sent.
pub(crate) fn printable(text: &str) -> String {
    let shown = |c: char| {
        if c.is_control() || turns(c) { c.escape_default().to_string() } else { c.to_string() }
    };
    text.chars().map(shown).collect()
}

/// The same for several lines.
pub(crate) fn printable_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

/// Bidirectional control characters: marks, embeddings, overrides, isolates.
fn turns(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// How many there are beside those that are shown.
pub(crate) fn others(count: u64) -> String {
    if count == 1 { "1 other".to_owned() } else { format!("{count} others") }
}

/// Names and values, aligned.
pub(crate) fn table(rows: &[(&str, String)]) -> String {
    let names: Vec<String> = rows.iter().map(|(name, _)| printable(name)).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    rows.iter().zip(names).fold(String::new(), |mut text, ((_, value), name)| {
        let _ = writeln!(text, "{name:width$}  {}", printable(value));
        text
    })
}

/// Rows under a heading, aligned; the last column is as wide as it is.
pub(crate) fn columns<const N: usize>(heading: [&str; N], rows: Vec<[String; N]>) -> String {
    let heading = heading.map(str::to_owned);
    grid(&heading, &rows.into_iter().map(Vec::from).collect::<Vec<_>>())
}

/// The same with any number of columns; rows are as long as the heading.
pub(crate) fn grid(heading: &[String], rows: &[Vec<String>]) -> String {
    let lines: Vec<Vec<String>> = std::iter::once(heading)
        .chain(rows.iter().map(Vec::as_slice))
        .map(|row| row.iter().map(|cell| printable(cell)).collect())
        .collect();
    let wide = |at: usize| lines.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..heading.len()).map(|at| wide(at).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &lines {
        for (at, cell) in row.iter().enumerate() {
            if at + 1 == row.len() {
                text.push_str(cell);
            } else {
                let _ = write!(text, "{cell:width$}  ", width = widths[at]);
            }
        }
        text.push('\n');
    }
    text
}

/// Milliseconds for people.
pub(crate) fn millis(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{:.1} s", ms as f64 / 1e3),
        120_000..7_200_000 => format!("{:.1} min", ms as f64 / 6e4),
        _ => format!("{:.1} h", ms as f64 / 3.6e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U+202A to U+202E, U+2066 to U+2069, and the marks.
    const TURNING: [char; 12] = [
        '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}',
        '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
    ];

    #[test]
    fn a_table_shows_what_would_turn_it_around() {
        for c in TURNING.into_iter().chain(['\u{1b}', '\n', '\r', '\u{85}', '\u{0}']) {
            let (hostile, shown) = (format!("a{c}b"), format!("a{}b", c.escape_default()));
            assert_eq!(table(&[(&hostile, hostile.clone())]), format!("{shown}  {shown}\n"));
            let told = columns(["key", "value"], vec![[hostile.clone(), hostile]]);
            assert_eq!(told.lines().nth(1), Some(format!("{shown}  {shown}").as_str()), "{told}");
        }
        assert_eq!(printable("Grüße, שלום"), "Grüße, שלום", "letters of any direction stay");
    }
}

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
    let _ = writeln!(std::io::stderr(), "quaymaster: {text}");
}

/// Names and values, aligned.
pub(crate) fn table(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name:width$}  {value}");
        text
    })
}

/// Rows under a heading, aligned; the last column is as wide as it is.
pub(crate) fn columns<const N: usize>(heading: [&str; N], rows: Vec<[String; N]>) -> String {
    let width = |at: usize| {
        let widest = rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
        widest.max(heading[at].len())
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |cells: [&str; N]| {
        let mut text = String::new();
        for (at, cell) in cells.into_iter().enumerate() {
            if at + 1 == N {
                text.push_str(cell);
            } else {
                let _ = write!(text, "{cell:width$}  ", width = widths[at]);
            }
        }
        text.push('\n');
        text
    };
    let mut text = line(heading);
    for row in &rows {
        text.push_str(&line(std::array::from_fn(|at| row[at].as_str())));
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

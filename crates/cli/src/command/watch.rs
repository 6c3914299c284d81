//! `stats report NAME --watch`: the report again and again, until told to stop. On a terminal the table is drawn in
//! place; elsewhere each report is one line.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use quaymaster::{Code, Error};
use quaymaster_server::StatsReport;
use tokio::signal::unix::{SignalKind, signal};

use super::call::Answering;
use super::serve::signalled;
use crate::args::Global;
use crate::calls::Watch;
use crate::failure::NothingRan;
use crate::report;

/// Endpoints drawn unless told otherwise.
const ENDPOINTS: u32 = 20;

pub(crate) async fn run(watch: Watch, global: &Global) -> anyhow::Result<ExitCode> {
    let Watch { call, every } = watch;
    let (name, json, mut fields) = (&call.name, global.json, call.given.fields.clone());
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let answering = tokio::select! {
        opened = Answering::open(&call, global) => opened?,
        _ = signalled(&mut terminate, &mut interrupt) => return Ok(ExitCode::SUCCESS),
    };
    let terminal = std::io::stdout().is_terminal() && !json;
    if terminal && !fields.contains_key("endpoints") {
        fields.insert("endpoints".to_owned(), serde_json::value::to_raw_value(&ENDPOINTS)?);
    }
    let mut tick = tokio::time::interval(every);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut first = true;
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = signalled(&mut terminate, &mut interrupt) => break,
        }
        let told = tokio::select! {
            told = answering.ask(&call, &fields, &|_| ()) => told,
            _ = signalled(&mut terminate, &mut interrupt) => break,
        };
        let told = told.and_then(|told| match serde_json::from_str::<StatsReport>(&told.text) {
            Ok(report) => Ok((told.text, report)),
            Err(error) => {
                let detail = format!("no report: {error}");
                Err(Error::new("stats.report", Code::ServerAnswer, detail).because(error))
            }
        });
        let text = match told {
            Ok((told, _)) if json => told + "\n",
            Ok((_, report)) => {
                if terminal {
                    drawn(&format!(
                        "stats {name}, every {} s\n\n{}",
                        every.as_secs_f64(),
                        report::table(&report)
                    ))
                } else {
                    report::line(&report)
                }
            }
            // Whoever asks wrongly is told at once; a store that goes away later may come back.
            Err(error) if first => return Err(NothingRan::from(error).into()),
            Err(error) if terminal => {
                drawn(&format!("stats {name}\n\n{error}\nasked again every {} s\n", every.as_secs_f64()))
            }
            Err(error) => {
                crate::output::error(&error.to_string());
                String::new()
            }
        };
        first = false;
        let mut out = std::io::stdout().lock();
        // Whoever read the lines may have gone (`| head`), and that ends the watching.
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            break;
        }
    }
    answering.close().await?;
    Ok(ExitCode::SUCCESS)
}

/// A text over what was drawn before: from the top, each line cleared to its end, then the rest of the screen.
fn drawn(text: &str) -> String {
    let mut out = String::from("\x1b[H");
    for line in text.lines() {
        let _ = write!(out, "{line}\x1b[K\r\n");
    }
    out.push_str("\x1b[J");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_drawn_over_the_last_one_and_leaves_nothing_of_it() {
        assert_eq!(drawn("a\nb\n"), "\x1b[Ha\x1b[K\r\nb\x1b[K\r\n\x1b[J");
    }
}

//! The `quaymaster` command.
//!
//! Exit codes: 0 done, 1 the answer is no or a check failed, 2 usage, 3 the store cannot be reached, 4 looked at only a
//! part.

mod allocator;
mod answer;
mod args;
mod calls;
mod certificates;
mod command;
mod failure;
mod notify;
mod output;
mod progress;
mod remote;
mod report;
mod setup;
mod sse;

use std::process::ExitCode;

use crate::args::{Args, Command, Wish};
use crate::failure::exit_code;

fn main() -> ExitCode {
    allocator::settle();
    // Two providers could come in through dependencies; naming one keeps `rediss://` from panicking later.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (args, store_flag) = Args::read();
    if !args.command.writes_for_others() {
        // What lies in the data folder is its user's alone, whatever the folder's mode.
        rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    }
    setup::logging(&args);
    setup::warn_of_password(store_flag.as_deref());
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::error(&format!("the runtime does not start: {error}"));
            return ExitCode::from(1);
        }
    };
    let json = args.global.json;
    let ended = runtime.block_on(run(args));
    // Every store that was opened is closed by now. What still runs is the opening of one that a signal broke
    // off, and nobody waits for that.
    runtime.shutdown_background();
    match ended {
        Ok(code) => code,
        Err(error) => {
            if json {
                // Standard output has what programs read; whoever reads neither has the exit code.
                let _ = output::print(&failure::problem(&error));
            }
            output::error(&failure::describe(&error));
            exit_code(&error)
        }
    }
}

async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Serve(serve) => command::serve::run(serve, &args.global).await,
        Command::Worker(worker) => command::worker::run(worker, &args.global).await,
        Command::Check(check) => command::check::run(&check, &args.global),
        Command::Docs(docs) => command::docs::run(&docs, &args.global),
        Command::Explain(explain) => command::explain::run(explain, &args.global).await,
        Command::Clean(clean) => command::clean::run(clean, &args.global).await,
        Command::Respell(respell) => command::respell::run(respell, &args.global).await,
        Command::Health(health) => command::health::run(health, &args.global).await,
        Command::Wish(Wish::Ask(mut call)) => {
            call.given.read()?;
            command::call::run(call, &args.global).await
        }
        Command::Wish(Wish::Watch(mut watch)) => {
            watch.call.given.read()?;
            command::watch::run(watch, &args.global).await
        }
        Command::Wish(Wish::Put(mut put)) => {
            put.given.read()?;
            command::upload::put::run(*put, &args.global).await
        }
        Command::Wish(Wish::Read(content)) => command::upload::content::run(content, &args.global).await,
        Command::Wish(Wish::Follow(follow)) => command::upload::progress::run(follow, &args.global).await,
        Command::Wish(Wish::Examine(doctor)) => command::upload::doctor::run(doctor, &args.global).await,
        Command::Wish(Wish::Listen(listen)) => command::stream::run(listen, &args.global).await,
        Command::Init(init) => command::init::run(&init, &args.global),
        Command::Schema(_) => command::schema::run(),
        Command::Openapi => output::print(&quaymaster_server::openapi()),
        Command::Describe => command::describe::run(&args.global),
    }
}

//! `mgp top`: servers, calls, latency, memory and what waits, while it happens.

mod figures;
mod history;
mod live;
mod look;
mod model;
mod printed;
mod questions;
mod rows;
mod screen;
mod summary;
mod terminal;
mod words;

use std::time::Duration;

use tokio::time::{Instant, sleep};

use self::look::TopLook;
use self::model::TopModel;
use crate::cli::args;
use crate::cli::client::{CliContext, ConnectOptions, KernelClient};
use crate::cli::failure::Failure;
use crate::cli::print::say;

const NO_TERMINAL: &str = "`mgp top` draws on a terminal, and this is none: `mgp top --once` prints one table, \
                           `mgp top --json` one line of JSON each interval";

pub(in crate::cli::commands) fn top(
    context: &CliContext,
    typed: &args::Top,
) -> Result<(), Failure> {
    let pace = typed.interval;
    if context.json || typed.once {
        return context.on_this_thread(printed(context, pace, typed.once));
    }
    if !terminal::is_there() {
        return Err(Failure::Usage(NO_TERMINAL.into()));
    }
    context.on_this_thread(live::live(context, pace))
}

/// Prints what is seen, each interval or once: the first time after two looks, as one is no rate.
async fn printed(context: &CliContext, pace: Duration, once: bool) -> Result<(), Failure> {
    let mut client = context.connected(ConnectOptions::default()).await?;
    let mut model = TopModel::default();
    let since = Instant::now();
    model.take(TopLook::at(&mut client, since.elapsed()).await?);
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        tokio::select! {
            () = sleep(pace) => {}
            _ = &mut interrupted => return Err(Failure::Interrupted),
        }
        looked(&mut client, &mut model, since).await?;
        match context.json {
            true => say(printed::object(&model))?,
            false => say(printed::text(&model).trim_end())?,
        }
        if once {
            return Ok(());
        }
    }
}

async fn looked(
    client: &mut KernelClient,
    model: &mut TopModel,
    since: Instant,
) -> Result<(), Failure> {
    model.take(TopLook::at(client, since.elapsed()).await?);
    Ok(())
}

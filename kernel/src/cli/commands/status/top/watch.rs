//! Samples the kernel, draws the screen, and handles keys, without blocking each other.

use std::time::Duration;

use mgp_runtime::time::unix_ms;
use ratatui::crossterm::event::Event;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, interval, sleep};

use super::model::{Action, Model};
use super::pending_entries::Decision;
use super::sample::{self, Sample};
use super::terminal::{Screen, spawn_event_reader};
use crate::cli::client::{CliContext, ConnectOptions, KernelClient};
use crate::cli::failure::Failure;

/// Interval of drawing without new samples, because ages grow.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of reconnecting, if sampling is rarer.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(2);
/// Updates that wait to be drawn; then sampling waits.
const UPDATE_QUEUE: usize = 4;
/// A kernel is reported as silent after one interval and this time.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// News about the kernel.
enum Update {
    Sample(Box<Sample>),
    /// It does not answer, for this reason.
    Unreachable(String),
    /// The result of a decision.
    DecisionSent(String),
}

/// Runs until the user quits.
pub(super) async fn run_live(context: &CliContext, pace: Duration) -> Result<(), Failure> {
    let client = context.connect(ConnectOptions::default()).await?;
    let (decisions, answers) = channel(1);
    let (told, update) = channel(UPDATE_QUEUE);
    let watch = Sampler {
        context,
        pace,
        since: Instant::now(),
        client: Some(client),
        updates: told,
    };
    let mut screen = Screen::open()?;
    // Whichever ends first ends both; then the terminal is restored.
    tokio::select! {
        ended = Box::pin(watch.run(answers)) => ended,
        ended = Box::pin(run_screen(&mut screen, pace, decisions, update)) => ended,
    }
}

/// Samples the kernel.
struct Sampler<'c> {
    context: &'c CliContext,
    pace: Duration,
    since: Instant,
    client: Option<KernelClient>,
    updates: Sender<Update>,
}

impl Sampler<'_> {
    async fn run(mut self, mut answers: Receiver<Decision>) -> Result<(), Failure> {
        let interrupted = tokio::signal::ctrl_c();
        tokio::pin!(interrupted);
        loop {
            let update = match self.take_sample().await {
                Ok(taken) => Update::Sample(Box::new(taken)),
                Err(failure) => self.on_failure(failure)?,
            };
            self.send(update).await;
            let pace = match self.client {
                Some(_) => self.pace,
                None => self.pace.min(RECONNECT_INTERVAL),
            };
            tokio::select! {
                () = sleep(pace) => {}
                answer = answers.recv() => match answer {
                    Some(answer) => self.send_answer(&answer).await?,
                    None => return Ok(()),
                },
                _ = &mut interrupted => return Err(Failure::Interrupted),
            }
        }
    }

    async fn take_sample(&mut self) -> Result<Sample, Failure> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.context.connect(ConnectOptions::default()).await?,
        };
        let taken = Sample::take(&mut client, self.since.elapsed()).await?;
        self.client = Some(client);
        Ok(taken)
    }

    /// Ctrl-C ends the program; other failures are shown, and retried.
    fn on_failure(&mut self, failure: Failure) -> Result<Update, Failure> {
        self.client = None;
        if matches!(failure, Failure::Interrupted) {
            return Err(failure);
        }
        let why = self.context.explain_absence(failure).to_string();
        Ok(Update::Unreachable(why))
    }

    async fn send_answer(&mut self, answer: &Decision) -> Result<(), Failure> {
        let Some(client) = &mut self.client else {
            self.send(Update::DecisionSent(
                "nothing was answered: the kernel is away".into(),
            ))
            .await;
            return Ok(());
        };
        let update = match sample::send_answer(client, answer).await {
            Ok(done) => Update::DecisionSent(done),
            Err(Failure::ErrorResponse { message, .. }) => Update::DecisionSent(message),
            Err(failure) => self.on_failure(failure)?,
        };
        self.send(update).await;
        Ok(())
    }

    /// The receiver lives as long as the sampler.
    async fn send(&self, update: Update) {
        let _ = self.updates.send(update).await;
    }
}

/// Draws updates, and handles keys.
async fn run_screen(
    screen: &mut Screen,
    pace: Duration,
    decisions: Sender<Decision>,
    mut update: Receiver<Update>,
) -> Result<(), Failure> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let mut beat = interval(REDRAW_INTERVAL);
    let mut events = spawn_event_reader();
    let mut model = Model::default();
    let mut last_update = Instant::now();
    loop {
        screen.draw(&mut model, unix_ms())?;
        tokio::select! {
            told = update.recv() => match told {
                Some(told) => {
                    last_update = Instant::now();
                    apply_update(&mut model, told);
                }
                None => return Ok(()),
            },
            event = events.recv() => match event {
                Some(event) => match handle_event(&mut model, event) {
                    Some(Action::Quit) => return Ok(()),
                    Some(Action::Suspend) => screen.suspend()?,
                    Some(Action::Decide(answer)) => {
                        let is_queued = decisions.try_send(answer).is_ok();
                        model.set_note(if is_queued { "answering" } else { "the last answer is under way still: again in a moment" });
                    }
                    None => {}
                },
                // The terminal is gone.
                None => return Err(Failure::OutputClosed),
            },
            _ = beat.tick() => {
                let silent = last_update.elapsed();
                if silent > pace + SILENCE_TIMEOUT && model.unreachable_reason.is_none() {
                    model.set_unreachable("the kernel is there, and has not answered for a while");
                }
            }
            _ = terminated.recv() => return Err(Failure::Interrupted),
            _ = hung_up.recv() => return Err(Failure::OutputClosed),
        }
    }
}

fn apply_update(model: &mut Model, update: Update) {
    match update {
        Update::Sample(taken) => model.add_sample(*taken),
        Update::Unreachable(why) => model.set_unreachable(&why),
        Update::DecisionSent(done) => model.set_note(&done),
    }
}

/// The action of a terminal event; a resize only redraws.
fn handle_event(model: &mut Model, event: Event) -> Option<Action> {
    match event {
        Event::Key(key) => model.handle_key(key),
        Event::Paste(text) => {
            model.handle_paste(&text);
            None
        }
        Event::Resize(..) | Event::FocusGained | Event::FocusLost | Event::Mouse(_) => None,
    }
}

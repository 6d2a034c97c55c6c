//! Looks at the kernel, draws what was seen, and does what keys say: three things that wait for each other nowhere.

use std::time::Duration;

use mgp_runtime::time::unix_ms;
use ratatui::crossterm::event::Event;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, interval, sleep};

use super::look::{self, TopLook};
use super::model::{TopModel, TopWish};
use super::questions::TopAnswer;
use super::terminal::{TopScreen, events};
use crate::cli::client::{CliContext, ConnectOptions, KernelClient};
use crate::cli::failure::Failure;

/// How often the screen is drawn while nothing is heard: ages grow.
const BEAT: Duration = Duration::from_secs(1);
/// How often a kernel that is away is looked for, if looks are rarer.
const AWAY: Duration = Duration::from_secs(2);
/// News that wait to be drawn; who looks waits then.
const NEWS: usize = 4;
/// A kernel that took more than one interval and this is told to be silent.
const SILENT: Duration = Duration::from_secs(5);

/// What became known of the kernel.
enum TopNews {
    Look(Box<TopLook>),
    /// It does not answer, for this reason.
    Gone(String),
    /// What came of an answer.
    Answered(String),
}

/// Draws until it is to end.
pub(super) async fn live(context: &CliContext, pace: Duration) -> Result<(), Failure> {
    let client = context.connected(ConnectOptions::default()).await?;
    let (asked, answers) = channel(1);
    let (told, news) = channel(NEWS);
    let watch = TopWatch {
        context,
        pace,
        since: Instant::now(),
        client: Some(client),
        told,
    };
    let mut screen = TopScreen::open()?;
    // Whoever ends first ends both; then the terminal is as it was.
    tokio::select! {
        ended = Box::pin(watch.run(answers)) => ended,
        ended = Box::pin(shown(&mut screen, pace, asked, news)) => ended,
    }
}

/// Who looks.
struct TopWatch<'c> {
    context: &'c CliContext,
    pace: Duration,
    since: Instant,
    client: Option<KernelClient>,
    told: Sender<TopNews>,
}

impl TopWatch<'_> {
    async fn run(mut self, mut answers: Receiver<TopAnswer>) -> Result<(), Failure> {
        let interrupted = tokio::signal::ctrl_c();
        tokio::pin!(interrupted);
        loop {
            let news = match self.look().await {
                Ok(look) => TopNews::Look(Box::new(look)),
                Err(failure) => self.gone(failure)?,
            };
            self.tell(news).await;
            let pace = match self.client {
                Some(_) => self.pace,
                None => self.pace.min(AWAY),
            };
            tokio::select! {
                () = sleep(pace) => {}
                answer = answers.recv() => match answer {
                    Some(answer) => self.answer(&answer).await?,
                    None => return Ok(()),
                },
                _ = &mut interrupted => return Err(Failure::Interrupted),
            }
        }
    }

    async fn look(&mut self) -> Result<TopLook, Failure> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => self.context.connected(ConnectOptions::default()).await?,
        };
        let look = TopLook::at(&mut client, self.since.elapsed()).await?;
        self.client = Some(client);
        Ok(look)
    }

    /// Ctrl-C ends all of it; whatever else went wrong is told, and tried again.
    fn gone(&mut self, failure: Failure) -> Result<TopNews, Failure> {
        self.client = None;
        if matches!(failure, Failure::Interrupted) {
            return Err(failure);
        }
        let why = self.context.explained(failure).to_string();
        Ok(TopNews::Gone(why))
    }

    async fn answer(&mut self, answer: &TopAnswer) -> Result<(), Failure> {
        let Some(client) = &mut self.client else {
            self.tell(TopNews::Answered(
                "nothing was answered: the kernel is away".into(),
            ))
            .await;
            return Ok(());
        };
        let news = match look::answer(client, answer).await {
            Ok(done) => TopNews::Answered(done),
            Err(Failure::Refused { message, .. }) => TopNews::Answered(message),
            Err(failure) => self.gone(failure)?,
        };
        self.tell(news).await;
        Ok(())
    }

    /// Who draws is there as long as who looks.
    async fn tell(&self, news: TopNews) {
        let _ = self.told.send(news).await;
    }
}

/// Draws what is told, and takes the keys.
async fn shown(
    screen: &mut TopScreen,
    pace: Duration,
    asked: Sender<TopAnswer>,
    mut news: Receiver<TopNews>,
) -> Result<(), Failure> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let mut beat = interval(BEAT);
    let mut events = events();
    let mut model = TopModel::default();
    let mut heard = Instant::now();
    loop {
        screen.draw(&mut model, unix_ms())?;
        tokio::select! {
            told = news.recv() => match told {
                Some(told) => {
                    heard = Instant::now();
                    take(&mut model, told);
                }
                None => return Ok(()),
            },
            event = events.recv() => match event {
                Some(event) => match wish(&mut model, event) {
                    Some(TopWish::Quit) => return Ok(()),
                    Some(TopWish::Suspend) => screen.suspend()?,
                    Some(TopWish::Answer(answer)) => {
                        let taken = asked.try_send(answer).is_ok();
                        model.tell(if taken { "answering" } else { "the last answer is under way still: again in a moment" });
                    }
                    None => {}
                },
                // Nobody is at the keys any more.
                None => return Err(Failure::NobodyReads),
            },
            _ = beat.tick() => {
                let silent = heard.elapsed();
                if silent > pace + SILENT && model.gone.is_none() {
                    model.lose("the kernel is there, and has not answered for a while");
                }
            }
            _ = terminated.recv() => return Err(Failure::Interrupted),
            _ = hung_up.recv() => return Err(Failure::NobodyReads),
        }
    }
}

fn take(model: &mut TopModel, news: TopNews) {
    match news {
        TopNews::Look(look) => model.take(*look),
        TopNews::Gone(why) => model.lose(&why),
        TopNews::Answered(done) => model.tell(&done),
    }
}

/// What an event of the terminal asks for; another size only wants another drawing.
fn wish(model: &mut TopModel, event: Event) -> Option<TopWish> {
    match event {
        Event::Key(key) => model.key(key),
        Event::Paste(text) => {
            model.paste(&text);
            None
        }
        Event::Resize(..) | Event::FocusGained | Event::FocusLost | Event::Mouse(_) => None,
    }
}

//! The terminal while it is all drawn on: as it was before, however this ends.

use std::io::{self, IsTerminal, Stdout, Write, stdout};
use std::panic;
use std::thread;

use nix::sys::signal::{Signal, raise};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{
    DisableBracketedPaste, EnableBracketedPaste, Event, KeyEventKind, read,
};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use ratatui::layout::{Position, Rect};
use tokio::sync::mpsc::{Receiver, channel};

use super::model::Model;
use super::screen::{self, Palette};

/// Keys that wait to be taken: more than a person hits while a screen is drawn. Then the terminal keeps them.
const EVENT_QUEUE: usize = 64;

/// Whether there is a terminal, and one that can be drawn on.
pub(super) fn is_available() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    // Those of editors and containers may say that they have no columns at all.
    let has_room = size().is_ok_and(|(columns, rows)| columns > 0 && rows > 0);
    stdout().is_terminal() && !dumb && has_room
}

/// The screen of this process. Dropping it makes the terminal as it was; so does a panic, before it is told.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    palette: Palette,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// There is none, or it does not do what is asked of it.
    pub(super) fn open() -> io::Result<Self> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            leave_fullscreen();
            before(panic);
        }));
        enter_fullscreen()?;
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let terminal = Terminal::new(CrosstermBackend::new(stdout()));
        Ok(Self {
            terminal: terminal.inspect_err(|_| leave_fullscreen())?,
            palette: Palette { colours },
        })
    }

    pub(super) fn draw(&mut self, model: &mut Model, now_ms: u64) -> io::Result<()> {
        let palette = self.palette;
        let draw = |frame: &mut ratatui::Frame<'_>| {
            screen::draw(frame.buffer_mut(), model, now_ms, palette);
        };
        self.terminal.draw(draw).map(drop)
    }

    /// Lays this process aside, as Ctrl-Z does, and takes the terminal again when it goes on.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        leave_fullscreen();
        raise(Signal::SIGTSTP)?;
        enter_fullscreen()?;
        // It may have another size meanwhile, and shows nothing in any case.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from((Position::ORIGIN, size)))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave_fullscreen();
    }
}

fn enter_fullscreen() -> io::Result<()> {
    enable_raw_mode()?;
    let entered = execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste, Hide);
    entered.inspect_err(|_| leave_fullscreen())
}

/// May be called twice. Nothing can be done for a terminal that is gone.
fn leave_fullscreen() {
    let _ = execute!(stdout(), Show, DisableBracketedPaste, LeaveAlternateScreen);
    let _ = stdout().flush();
    let _ = disable_raw_mode();
}

/// What is done at the terminal: keys, pasted texts, another size. Ends with the terminal.
pub(super) fn spawn_event_reader() -> Receiver<Event> {
    let (told, events) = channel(EVENT_QUEUE);
    // It may wait for a key when this process ends; nobody waits for it.
    thread::spawn(move || {
        while let Ok(event) = read() {
            let released = matches!(&event, Event::Key(key) if key.kind == KeyEventKind::Release);
            if !released && told.blocking_send(event).is_err() {
                return;
            }
        }
    });
    events
}

//! The terminal in full-screen mode, restored however the program ends.

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

/// Queued key events; beyond that the terminal buffers them.
const EVENT_QUEUE: usize = 64;

/// Whether there is a usable terminal.
pub(super) fn is_available() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    // Terminals of editors and containers may report zero columns.
    let has_room = size().is_ok_and(|(columns, rows)| columns > 0 && rows > 0);
    stdout().is_terminal() && !dumb && has_room
}

/// The screen of this process. Dropping it restores the terminal; so does a panic, before its message.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    palette: Palette,
}

impl Screen {
    /// Enters full-screen mode.
    ///
    /// # Errors
    /// There is no terminal, or it does not support this.
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

    /// Suspends this process, as Ctrl-Z does, and enters full-screen mode again when it continues.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        leave_fullscreen();
        raise(Signal::SIGTSTP)?;
        enter_fullscreen()?;
        // Its size may have changed, and it must be redrawn in any case.
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

/// Idempotent. A closed terminal needs no restoring.
fn leave_fullscreen() {
    let _ = execute!(stdout(), Show, DisableBracketedPaste, LeaveAlternateScreen);
    let _ = stdout().flush();
    let _ = disable_raw_mode();
}

/// Reads terminal events: keys, pasted texts, resizes. Ends with the terminal.
pub(super) fn spawn_event_reader() -> Receiver<Event> {
    let (told, events) = channel(EVENT_QUEUE);
    // It may be waiting for a key when this process ends; it cannot be joined.
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

//! A terminal with somebody at its keys.

mod arguments;
mod completions;
mod following;
mod hostile;
mod pager;
mod tables;
mod top;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use mgp_tests::harness::process::usage::below;
use mgp_tests::harness::{DEADLINE, Program, wait_until};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{FlowArg, LocalFlags, tcflow, tcgetattr};
use nix::unistd::{Pid, ttyname};

/// A pseudo terminal. Dropping it ends what runs there.
pub(super) struct Terminal {
    keys: File,
    slave: Option<OwnedFd>,
    shown: Arc<Mutex<Vec<u8>>>,
    running: Option<Child>,
}

impl Terminal {
    /// One that says that it has no columns.
    pub(super) fn open() -> Self {
        Self::of(None)
    }

    /// One of this size.
    pub(super) fn sized(columns: u16, rows: u16) -> Self {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        Self::of(Some(&size))
    }

    fn of(size: Option<&Winsize>) -> Self {
        let pty = openpty(size, None).unwrap();
        let keys = File::from(pty.master);
        let mut screen = keys.try_clone().unwrap();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let seen = shown.clone();
        // To the end of the terminal, with its last process.
        thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(n @ 1..) = screen.read(&mut part) {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.extend(&part[..n]);
            }
        });
        Self {
            keys,
            slave: Some(pty.slave),
            shown,
            running: None,
        }
    }

    /// Starts a program there, as the first of its session.
    pub(super) fn start(&mut self, program: &Program) {
        let mut inner = vec!["--ctty", &program.command];
        inner.extend(program.args.iter().map(String::as_str));
        let outer = Program::new("setsid", inner);
        let outer = (program.env.iter()).fold(outer, |outer, (name, value)| outer.env(name, value));
        let end = || Stdio::from(self.slave.as_ref().unwrap().try_clone().unwrap());
        let mut command = outer.to_command();
        command.stdin(end()).stdout(end()).stderr(end());
        self.running = Some(command.spawn().unwrap());
    }

    /// The process that was started.
    pub(super) fn running(&self) -> u32 {
        self.running.as_ref().unwrap().id()
    }

    /// Gives it another size, as a person does who pulls at its window.
    pub(super) async fn resize(&self, columns: u16, rows: u16) {
        let name = ttyname(self.slave.as_ref().unwrap()).unwrap();
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let name = name.display().to_string();
        let stty = Program::new("stty", ["-F", &name, "cols", &columns, "rows", &rows]);
        assert!(stty.output(DEADLINE).await.status.success());
    }

    /// Nothing that is written to the terminal gets through, until it may again.
    pub(super) fn holds_back(&self, hold: bool) {
        let action = if hold {
            FlowArg::TCOOFF
        } else {
            FlowArg::TCOON
        };
        tcflow(self.slave.as_ref().unwrap(), action).unwrap();
    }

    pub(super) fn keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    pub(super) fn has(&self, flags: LocalFlags) -> bool {
        tcgetattr(&self.keys).unwrap().local_flags.contains(flags)
    }

    pub(super) fn shown(&self) -> String {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&shown).into_owned()
    }

    pub(super) async fn shows(&self, part: &str) {
        let what = format!("the terminal shows {part}");
        wait_until(&what, DEADLINE, async || self.shown().contains(part)).await;
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the terminal shows\n{}\n---", self.shown());
        }
        if let Some(mut running) = self.running.take() {
            for pid in below(running.id()) {
                // It may have ended already.
                let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
            }
            let _ = running.kill();
            let _ = running.wait();
        }
    }
}

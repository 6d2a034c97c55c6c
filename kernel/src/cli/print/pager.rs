//! Pages long output on a terminal like git, through `MGP_PAGER`, `PAGER` or `less`.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::process::{Child, Command, Stdio};

use nix::unistd::dup2_stdout;

/// Default options of less: quit if everything fits, show colours, and leave the output on the screen.
const LESS_OPTIONS: &str = "FRX";

/// A pager for all later output of this process. Dropping it waits for the user to quit.
pub(in crate::cli) struct Pager {
    pager: Child,
}

impl Pager {
    /// Starts a pager on a terminal if wanted; else output is printed directly.
    pub(in crate::cli) fn start(wanted: bool) -> Option<Self> {
        if !wanted || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return None;
        }
        let command = pager_command(|name| env::var(name).ok())?;
        // Tables use the width before the pager covers the terminal.
        super::table::remember_width();
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).stdin(Stdio::piped());
        if env::var_os("LESS").is_none() {
            shell.env("LESS", LESS_OPTIONS);
        }
        ignore_interrupts()?;
        let mut pager = shell.spawn().ok()?;
        let input = pager.stdin.take()?;
        match dup2_stdout(&input) {
            Ok(()) => Some(Self { pager }),
            Err(_) => {
                drop(input);
                let _ = pager.wait();
                None
            }
        }
    }
}

/// The command line for the shell; `None` for no pager.
fn pager_command(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let own = variable("MGP_PAGER").or_else(|| variable("PAGER"));
    // less may not be installed.
    let path = variable("PATH").unwrap_or_default();
    let less = || env::split_paths(&path).any(|folder| folder.join("less").is_file());
    let command = own.or_else(|| less().then(|| "less".to_owned()))?;
    let none = command.trim().is_empty() || command.trim() == "cat";
    let dumb = variable("TERM").is_some_and(|term| term == "dumb");
    (!none && !dumb).then_some(command)
}

/// Interrupts are left to the pager, like less expects; this process ends when the pager does.
fn ignore_interrupts() -> Option<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().ok()?;
    let _entered = runtime.enter();
    // A registered handler replaces the default, which ends the process.
    signal(SignalKind::interrupt()).ok().map(drop)
}

impl Drop for Pager {
    fn drop(&mut self) {
        let _ = io::stdout().flush();
        // The pager reaches the end of its input once no writer is left.
        if let Ok(nothing) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
            let _ = dup2_stdout(&nothing);
        }
        let _ = self.pager.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pager_is_chosen_by_variables() {
        let with = |set: &[(&str, &str)]| {
            pager_command(|name| {
                let found = set.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(
            with(&[("PATH", "/nowhere")]),
            None,
            "nobody has to have less"
        );
        assert_eq!(with(&[("PAGER", "more")]).as_deref(), Some("more"));
        let both = [("PAGER", "more"), ("MGP_PAGER", "less -S")];
        assert_eq!(with(&both).as_deref(), Some("less -S"));
        for none in ["", " ", "cat"] {
            assert_eq!(with(&[("PAGER", "more"), ("MGP_PAGER", none)]), None);
        }
        assert_eq!(with(&[("TERM", "dumb")]), None);
    }
}

//! How a child ended, for programs and for people.

use std::fmt;

use nix::sys::signal::Signal;

/// The end of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildExit {
    /// The exit code.
    pub code: Option<i32>,
    /// The number of the signal that killed it. Both are `None` when the process hangs in the system and survives even
    /// SIGKILL.
    pub(crate) signal: Option<i32>,
    /// The cause of the end.
    pub cause: ExitCause,
    /// Some descendant was killed and still runs: it hangs in the system.
    pub has_leftovers: bool,
}

/// The step of the shutdown sequence that ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitCause {
    /// It had ended before the shutdown.
    ByItself,
    /// It ended when its stdin was closed, as a server should.
    StdinClosed,
    /// It ended on SIGTERM.
    Terminated,
    /// It had to be killed.
    Killed,
}

impl fmt::Display for ChildExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exited with code {code}")?,
            (None, Some(number)) => write!(f, "killed by signal {number}{}", SignalName(number))?,
            (None, None) => f.write_str("hangs in the system and cannot be killed")?,
        }
        f.write_str(match self.cause {
            ExitCause::ByItself => "",
            ExitCause::StdinClosed => " when its stdin was closed",
            ExitCause::Terminated => " when told to stop",
            ExitCause::Killed => " after it had ignored SIGTERM",
        })?;
        if self.has_leftovers {
            f.write_str("; something of it was killed and still runs")
        } else {
            Ok(())
        }
    }
}

struct SignalName(i32);

impl fmt::Display for SignalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Signal::try_from(self.0) {
            Ok(signal) => write!(f, " ({})", signal.as_str()),
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_is_rendered_as_a_sentence() {
        let text = |code, signal, how| {
            let has_leftovers = code == Some(5);
            ChildExit {
                code,
                signal,
                cause: how,
                has_leftovers,
            }
            .to_string()
        };
        assert_eq!(
            text(Some(3), None, ExitCause::ByItself),
            "exited with code 3"
        );
        assert_eq!(
            text(None, Some(9), ExitCause::ByItself),
            "killed by signal 9 (SIGKILL)"
        );
        let expected = "exited with code 5; something of it was killed and still runs";
        assert_eq!(text(Some(5), None, ExitCause::ByItself), expected);
        assert_eq!(
            text(None, Some(40), ExitCause::ByItself),
            "killed by signal 40"
        );
        assert_eq!(
            text(Some(0), None, ExitCause::StdinClosed),
            "exited with code 0 when its stdin was closed"
        );
    }
}

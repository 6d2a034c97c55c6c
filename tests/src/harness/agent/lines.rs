//! Newline-delimited JSON, raw: to a child's pipes or to the kernel's socket.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::IN_FLIGHT;
use crate::harness::wait::within;
use crate::harness::{DEADLINE, Program};

/// A line each way. Dropping it ends the child, when there is one.
pub(super) struct LineWire {
    writer: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    child: Option<Child>,
}

impl LineWire {
    pub(super) fn to_child(program: &Program) -> (Self, mpsc::Receiver<String>) {
        let mut command = Command::from(program.to_command());
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Its stderr joins the test's own: shown when the test fails.
        let started = piped.stderr(Stdio::inherit()).kill_on_drop(true).spawn();
        let mut child =
            started.unwrap_or_else(|e| panic!("{} does not start: {e}", program.command));
        let reader = child.stdout.take().expect("stdout is piped");
        let writer = child.stdin.take().expect("stdin is piped");
        let wire = Self {
            writer: Some(Box::new(writer)),
            child: Some(child),
        };
        (wire, frames(reader))
    }

    pub(super) async fn to_socket(path: &Path) -> (Self, mpsc::Receiver<String>) {
        let stream = UnixStream::connect(path).await;
        let stream = stream.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let (reader, writer) = stream.into_split();
        let wire = Self {
            writer: Some(Box::new(writer)),
            child: None,
        };
        (wire, frames(reader))
    }

    pub(super) async fn send(&mut self, frame: &str) {
        let writer = self.writer.as_mut().expect("the wire is open");
        let line = format!("{frame}\n");
        let sent = async {
            writer.write_all(line.as_bytes()).await?;
            writer.flush().await
        };
        let sent = within("the other side reads", DEADLINE, sent).await;
        sent.expect("the other side is there");
    }

    /// Closes the way out and waits for the child to end.
    pub(super) async fn close(mut self, deadline: Duration) -> Option<ExitStatus> {
        drop(self.writer.take());
        ended(self.child.as_mut()?, "closed", deadline).await
    }

    /// Waits for the child to end by itself.
    pub(super) async fn left(mut self, deadline: Duration) -> Option<ExitStatus> {
        ended(self.child.as_mut()?, "open", deadline).await
    }
}

async fn ended(child: &mut Child, stdin: &str, deadline: Duration) -> Option<ExitStatus> {
    let what = format!("the end of a child whose stdin is {stdin}");
    let ended = within(&what, deadline, child.wait()).await;
    Some(ended.expect("a child can be waited for"))
}

/// The lines of `reader`; ends with it. Blank lines are nothing.
fn frames(reader: impl AsyncRead + Send + Unpin + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    tokio::spawn(async move {
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if !line.trim().is_empty() && sender.send(line).await.is_err() {
                break;
            }
        }
    });
    receiver
}
